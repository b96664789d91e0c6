#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "cupti_search.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

struct Folders : testing::Test {
  std::map<std::string, std::string> variables;
  std::vector<fs::path> find(const fs::path& home = {}, const fs::path& executable = {}) {
    return cupti_folders([this](const char* name) { return variables[name]; }, home, executable);
  }
  static std::ptrdiff_t place(const std::vector<fs::path>& folders, const fs::path& wanted) {
    return std::find(folders.begin(), folders.end(), wanted) - folders.begin();
  }
};

TEST_F(Folders, what_the_user_names_comes_first) {
  variables = {{"ADAMK_CUDA_HOME", "/a"}, {"CUDA_HOME", "/b"}};
  const auto folders = find("/c");
  EXPECT_EQ(folders.front(), fs::path("/a/lib64"));
  EXPECT_LT(place(folders, "/a/extras/CUPTI/lib64"), place(folders, "/b/lib64"));
  EXPECT_LT(place(folders, "/b/lib64"), place(folders, "/usr/local/cuda/lib64"));
  EXPECT_LT(place(folders, "/usr/local/cuda/lib64"), place(folders, "/c/lib64"));
  EXPECT_LT(place(folders, "/c/lib64"), static_cast<std::ptrdiff_t>(folders.size()));
}

TEST_F(Folders, unset_variables_add_nothing_and_never_the_root) {
  for (const fs::path& folder : find()) EXPECT_TRUE(folder.string().starts_with("/usr/local/cuda/")) << folder;
}

TEST_F(Folders, the_build_folder_that_set_up_fills_is_found_from_the_executable) {
  const auto folders = find({}, "/src/build/release/bin/adamk-profile");
  EXPECT_LT(place(folders, "/src/build/cuda/lib"), static_cast<std::ptrdiff_t>(folders.size()));
}

TEST_F(Folders, libraries_of_python_wheels_are_found_in_either_layout) {
  const fs::path root = fs::path(testing::TempDir()) / "adamk_cupti_wheels";
  fs::remove_all(root);
  fs::create_directories(root / "nvidia/cu13/lib");
  fs::create_directories(root / "nvidia/cuda_cupti/lib");
  fs::create_directories(root / "env/lib/python3.11/site-packages/nvidia/cu13/lib");
  variables = {{"ADAMK_CUDA_HOME", root.string()}, {"VIRTUAL_ENV", (root / "env").string()}};
  const auto folders = find();
  for (const char* wanted : {"nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "env/lib/python3.11/site-packages/nvidia/cu13/lib"}) {
    EXPECT_LT(place(folders, root / wanted), static_cast<std::ptrdiff_t>(folders.size())) << wanted;
  }
  fs::remove_all(root);
}

TEST(CuptiError, missing_permission_names_the_setting_and_the_page) {
  const Error error = cupti_error(35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "enabling counters");
  EXPECT_EQ(error.code, Errc::machine);
  for (const char* part : {"enabling counters", "NVreg_RestrictProfilingToAdminUsers", "CAP_SYS_ADMIN",
                           "docs/warnings/counters-not-permitted.md"}) {
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
}

TEST(CuptiError, another_code_says_what_was_being_done) {
  const Error error = cupti_error(1, "CUPTI_ERROR_INVALID_PARAMETER", "tracing kernels");
  EXPECT_EQ(error.message, "tracing kernels: CUPTI 1, CUPTI_ERROR_INVALID_PARAMETER");
}

TEST(Warnings, every_page_that_a_message_names_exists) {
  for (const char* page : {"counters-not-permitted.md", "no-cupti.md", "throttled.md"}) {
    EXPECT_TRUE(fs::exists(fs::path(ADAMK_SOURCE_DIR) / "docs/warnings" / page)) << page;
  }
}

}  // namespace
}  // namespace adamk
