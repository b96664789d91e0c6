// What the fuzz targets share. A target is one function over bytes; clang links it with libFuzzer (preset `fuzz`), any other
// compiler with driver.cpp, which replays the corpus and a bounded number of seeded mutations of it.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace adamk::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A rule that does not hold for the input at hand ends the process, as a sanitizer's report does.
inline void require(bool holds, const char* rule) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", rule);
  std::abort();
}

/// A folder of this process for targets whose reader takes a path; in memory where the system has such a place.
class Folder {
 public:
  Folder() {
    const std::filesystem::path shm = "/dev/shm";
    std::error_code ignored;
    const auto base = std::filesystem::is_directory(shm, ignored) && access(shm.c_str(), W_OK) == 0
                          ? shm : std::filesystem::temp_directory_path();
    path_ = base / ("adamk-fuzz-" + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path write(const char* name, std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace adamk::fuzz
