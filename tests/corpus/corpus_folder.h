// Where the corpus lies, for tests that skip without it.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace adamk {

/// $ADAMK_CORPUS, else ../shared/corpus beside the source tree.
inline std::filesystem::path corpus_folder() {
  const char* chosen = std::getenv("ADAMK_CORPUS");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return std::filesystem::path(ADAMK_SOURCE_DIR) / ".." / "shared" / "corpus";
}

}  // namespace adamk

#define ADAMK_SKIP_WITHOUT_CORPUS()                                                             \
  do {                                                                                          \
    std::error_code adamk_ignored;                                                              \
    if (!std::filesystem::is_directory(corpus_folder(), adamk_ignored)) {                       \
      GTEST_SKIP() << "no corpus at " << corpus_folder() << "; set ADAMK_CORPUS to the folder"; \
    }                                                                                           \
  } while (false)
