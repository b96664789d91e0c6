#include "worker_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace adamk {
namespace {

/// A worker that is a shell script: $line holds the request; the channel is descriptor 3.
WorkerProcess shell(const std::string& script) {
  auto process = WorkerProcess::start({"/bin/sh", "-c", script});
  EXPECT_TRUE(process);
  return std::move(*process);
}

const Json hello = {{"do", "hello"}};

TEST(WorkerProcess, answers_line_by_line_and_survives_many_requests) {
  WorkerProcess worker = shell("while read -r line <&3; do printf '{\"got\": %s}\\n' \"$line\" >&3; done");
  for (int i = 0; i < 20; ++i) {
    const Reply reply = worker.ask({{"number", i}}, 10);
    ASSERT_EQ(reply.state, ReplyState::ok) << reply.detail;
    EXPECT_EQ(reply.value["got"]["number"], i);
  }
  EXPECT_TRUE(worker.alive());
}

TEST(WorkerProcess, what_it_prints_does_not_disturb_the_channel) {
  WorkerProcess worker = shell("read -r line <&3; echo noise on stdout >/dev/stdout 2>/dev/null; printf '{}\\n' >&3; read -r line <&3");
  EXPECT_EQ(worker.ask(hello, 10).state, ReplyState::ok);
}

TEST(WorkerProcess, a_crash_is_reported_with_its_signal) {
  WorkerProcess worker = shell("read -r line <&3; kill -SEGV $$");
  const Reply reply = worker.ask(hello, 10);
  EXPECT_EQ(reply.state, ReplyState::died);
  EXPECT_NE(reply.detail.find("signal 11"), std::string::npos) << reply.detail;
  EXPECT_FALSE(worker.alive());
  EXPECT_EQ(worker.ask(hello, 10).state, ReplyState::died);
}

TEST(WorkerProcess, an_exit_is_reported_with_its_status) {
  WorkerProcess worker = shell("read -r line <&3; exit 5");
  EXPECT_EQ(worker.ask(hello, 10).detail, "the worker ended with status 5");
}

TEST(WorkerProcess, a_command_that_does_not_exist_cannot_be_started) {
  auto worker = WorkerProcess::start({"/nonexistent/adamk"});
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->ask(hello, 10).detail, "the worker could not be started");
}

TEST(WorkerProcess, a_hang_is_killed_at_the_deadline_with_all_it_started) {
  const std::string file = testing::TempDir() + "/adamk_worker_child";
  WorkerProcess worker = shell("read -r line <&3; sleep 600 & echo $! > " + file + "; wait");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(worker.ask(hello, 0.5).state, ReplyState::timeout);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_FALSE(worker.alive());
  pid_t child = 0;
  std::ifstream(file) >> child;
  ASSERT_GT(child, 0);
  // Killed, though perhaps not yet collected by init.
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    std::string stat;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/stat"), stat);
    gone = stat.empty() || stat.find(") Z ") != std::string::npos;
    if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(gone);
}

TEST(WorkerProcess, garbage_ends_it) {
  WorkerProcess worker = shell("read -r line <&3; echo 'not json' >&3; sleep 600");
  const Reply reply = worker.ask(hello, 10);
  EXPECT_EQ(reply.state, ReplyState::garbage);
  EXPECT_NE(reply.detail.find("not json"), std::string::npos);
  EXPECT_FALSE(worker.alive());
}

TEST(WorkerProcess, cancelling_ends_a_wait) {
  WorkerProcess worker = shell("read -r line <&3; sleep 600");
  int asked = 0;
  EXPECT_EQ(worker.ask(hello, 60, [&] { return ++asked > 2; }).state, ReplyState::cancelled);
}

TEST(WorkerProcess, a_request_longer_than_the_sockets_buffer_arrives_whole) {
  WorkerProcess worker = shell("read -r line <&3; printf '{\"length\": %s}\\n' ${#line} >&3; read -r line <&3");
  const Json request = {{"text", std::string(400'000, 'x')}};
  const Reply reply = worker.ask(request, 60);
  ASSERT_EQ(reply.state, ReplyState::ok) << reply.detail;
  EXPECT_EQ(reply.value["length"], request.dump().size());
}

}  // namespace
}  // namespace adamk
