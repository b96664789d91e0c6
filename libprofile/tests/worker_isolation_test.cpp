// What a worker can no longer do. Each test forks: there is no way back for the process that is isolated.
#include "worker_isolation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <thread>

#include "adamk/base/file.h"
#include "adamk/codegen/kernel.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

class WorkerIsolation : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("adamk_isolation_" + std::to_string(getpid()));
    fs::create_directories(scratch());
    std::ofstream(outside()) << "before";
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path scratch() const { return root_ / "scratch"; }
  fs::path outside() const { return root_ / "outside.txt"; }

  /// Runs `attempt` in an isolated child; it returns 0 when the attempt succeeded, else errno.
  struct Outcome {
    std::string applied;
    int code = -1;
  };
  Outcome isolated(const std::function<int()>& attempt) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto applied = isolate_worker(scratch());
      const std::string text = applied ? *applied : "";
      ssize_t written = write(ends[1], text.data(), text.size());
      static_cast<void>(written);
      _exit(applied ? attempt() : 255);
    }
    close(ends[1]);
    Outcome outcome;
    char buffer[512];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
      outcome.applied.append(buffer, static_cast<std::size_t>(count));
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
    return outcome;
  }
  static int errno_of(bool succeeded) { return succeeded ? 0 : errno; }

  void expect_refused(const char* what, const std::function<int()>& attempt, const char* by) {
    const Outcome outcome = isolated(attempt);
    if (!(outcome.applied + ",").starts_with(by) && outcome.applied.find(std::string(", ") + by) == std::string::npos) {
      GTEST_SKIP() << "this kernel has no " << by << ": " << outcome.applied;
    }
    EXPECT_TRUE(outcome.code == EACCES || outcome.code == EPERM || outcome.code == EXDEV)
        << what << ": ended with " << outcome.code << " (" << outcome.applied << ")";
  }

 private:
  fs::path root_;
};

TEST_F(WorkerIsolation, says_what_was_applied) {
  const Outcome outcome = isolated([] { return 0; });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.applied, "");
  // Of each mechanism, that it holds or why it does not.
  EXPECT_NE(outcome.applied.find("landlock"), std::string::npos) << outcome.applied;
  EXPECT_NE(outcome.applied.find("seccomp"), std::string::npos) << outcome.applied;
}

TEST_F(WorkerIsolation, needs_a_scratch_folder) {
  const auto applied = isolate_worker(scratch() / "missing");
  ASSERT_FALSE(applied);
  EXPECT_NE(applied.error().message.find("missing"), std::string::npos);
}

TEST_F(WorkerIsolation, files_outside_the_scratch_folder_stay_as_they_are) {
  struct Attempt {
    const char* what;
    std::function<int()> run;
  };
  const std::string file = outside().string(), inside = (scratch() / "mine").string();
  const std::string fresh = file + ".new", folder = file + ".folder";
  const std::vector<Attempt> attempts = {
      {"write", [&] { return errno_of(open(file.c_str(), O_WRONLY) >= 0); }},
      {"create", [&] { return errno_of(open(fresh.c_str(), O_WRONLY | O_CREAT, 0666) >= 0); }},
      {"truncate", [&] { return errno_of(truncate(file.c_str(), 0) == 0); }},
      {"unlink", [&] { return errno_of(unlink(file.c_str()) == 0); }},
      {"rename away", [&] { return errno_of(rename(file.c_str(), inside.c_str()) == 0); }},
      {"link away", [&] { return errno_of(link(file.c_str(), inside.c_str()) == 0); }},
      {"mkdir", [&] { return errno_of(mkdir(folder.c_str(), 0777) == 0); }},
      {"rmdir", [&] { return errno_of(rmdir(scratch().c_str()) == 0); }},
      {"symlink", [&] { return errno_of(symlink("x", fresh.c_str()) == 0); }},
      {"fifo", [&] { return errno_of(mkfifo(fresh.c_str(), 0666) == 0); }},
  };
  for (const Attempt& attempt : attempts) {
    ASSERT_NO_FATAL_FAILURE(expect_refused(attempt.what, attempt.run, "landlock"));
    if (IsSkipped()) return;
    EXPECT_EQ(read_file(outside(), 100).value(), "before") << attempt.what;
    EXPECT_FALSE(fs::exists(fs::symlink_status(fresh)) || fs::exists(folder)) << attempt.what;
  }
}

TEST_F(WorkerIsolation, a_path_through_the_scratch_folder_leads_nowhere_else) {
  const std::string link = (scratch() / "link").string(), up = (scratch() / "../outside.txt").string();
  expect_refused("through a symbolic link", [&] {
    if (symlink(outside().c_str(), link.c_str()) != 0) return 0;   // making it is allowed
    return errno_of(open(link.c_str(), O_WRONLY | O_TRUNC) >= 0);
  }, "landlock");
  expect_refused("through ..", [&] { return errno_of(open(up.c_str(), O_WRONLY) >= 0); }, "landlock");
  EXPECT_EQ(read_file(outside(), 100).value(), "before");
}

TEST_F(WorkerIsolation, threads_started_later_are_confined_too) {
  expect_refused("in a thread", [&] {
    int code = 0;
    std::thread([&] { code = errno_of(open(outside().c_str(), O_WRONLY) >= 0); }).join();
    return code;
  }, "landlock");
}

TEST_F(WorkerIsolation, mode_owner_and_times_of_files_stay_as_they_are) {
  expect_refused("chmod", [&] { return errno_of(chmod(outside().c_str(), 0777) == 0); }, "seccomp");
  expect_refused("chown", [&] { return errno_of(chown(outside().c_str(), 1, 1) == 0); }, "seccomp");
  expect_refused("utimensat", [&] { return errno_of(utimensat(AT_FDCWD, outside().c_str(), nullptr, 0) == 0); }, "seccomp");
}

TEST_F(WorkerIsolation, no_program_is_executed_and_no_process_started) {
  expect_refused("exec", [] {
    execl("/bin/true", "true", nullptr);
    return errno;
  }, "seccomp");
  expect_refused("fork", [] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    return errno_of(child > 0);
  }, "seccomp");
  const Outcome shell = isolated([] { return std::system("exit 0") == 0 ? 0 : EPERM; });
  EXPECT_EQ(shell.code, EPERM) << shell.applied;
}

TEST_F(WorkerIsolation, no_socket_leaves_the_machine) {
  for (const int family : {AF_INET, AF_INET6, AF_PACKET, AF_NETLINK}) {
    expect_refused("socket", [family] { return errno_of(socket(family, SOCK_DGRAM, 0) >= 0); }, "seccomp");
  }
  EXPECT_EQ(isolated([] { return errno_of(socket(AF_UNIX, SOCK_STREAM, 0) >= 0); }).code, 0);
}

TEST_F(WorkerIsolation, other_processes_are_neither_signalled_nor_traced) {
  const pid_t parent = getpid();
  expect_refused("kill", [parent] { return errno_of(kill(parent, SIGUSR1) == 0); }, "seccomp");
  expect_refused("kill a group", [] { return errno_of(kill(0, SIGUSR1) == 0); }, "seccomp");
  expect_refused("kill all", [] { return errno_of(kill(-1, 0) == 0); }, "seccomp");
  expect_refused("ptrace", [parent] { return errno_of(ptrace(PTRACE_ATTACH, parent, nullptr, nullptr) == 0); }, "seccomp");
}

TEST_F(WorkerIsolation, a_crash_is_still_a_crash) {
  const Outcome outcome = isolated([]() -> int {
    signal(SIGABRT, SIG_DFL);
    std::abort();   // raises a signal in itself
  });
  EXPECT_EQ(outcome.code, -1) << "ended by a signal, not with a status: " << outcome.applied;
}

TEST_F(WorkerIsolation, ordinary_work_goes_on) {
  const fs::path file = scratch() / "out.image";
  const Outcome outcome = isolated([&] {
    if (!write_file_atomic(file, "image")) return 1;
    if (!fs::create_directory(scratch() / "sub") || !write_file_atomic(scratch() / "sub" / "a", "a")) return 2;
    fs::rename(scratch() / "sub" / "a", scratch() / "b");
    if (fs::temp_directory_path() != scratch()) return 3;
    if (std::string(std::getenv("CUDA_CACHE_PATH")).find(scratch().string()) != 0) return 4;
    if (!read_file(outside(), 100)) return 5;
    int value = 0;
    std::thread([&] { value = 7; }).join();
    if (value != 7) return 6;
    if (open("/dev/null", O_RDWR) < 0) return 7;
    rlimit cores{};
    if (getrlimit(RLIMIT_CORE, &cores) != 0 || cores.rlim_max != 0) return 8;
    return 0;
  });
  EXPECT_EQ(outcome.code, 0) << outcome.applied;
  EXPECT_EQ(read_file(file, 100).value(), "image");
}

TEST_F(WorkerIsolation, a_kernel_is_compiled) {
  const auto kernel_text = "extern \"C\" __global__ void k(int* out) { *out = 1; }";
  if (const auto outside_of_it = compile(kernel_text, "sm_90a"); !outside_of_it) GTEST_SKIP() << outside_of_it.error().message;
  const Outcome outcome = isolated([&] { return compile(kernel_text, "sm_90a") ? 0 : 1; });
  EXPECT_EQ(outcome.code, 0) << outcome.applied;
}

}  // namespace
}  // namespace adamk
