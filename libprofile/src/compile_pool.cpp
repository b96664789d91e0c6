#include "compile_pool.h"

#include <chrono>

#include "adamk/base/file.h"
#include "adamk/base/hash.h"
#include "adamk/codegen/kernel.h"
#include "adamk/dag/tile_dag.h"
#include "adamk/dag/validator.h"
#include "adamk/profile/emulated_device.h"

namespace adamk {
namespace {

PreparedCandidate ended(Status status, std::string message) {
  PreparedCandidate candidate;
  candidate.status = status;
  candidate.message = std::move(message);
  return candidate;
}

}  // namespace

CompilePool::CompilePool(Options options, const Deployment& deployment, const std::vector<const Schedule*>& schedules)
    : options_(std::move(options)), deployment_(deployment), schedules_(schedules), done_(schedules.size()) {
  const std::size_t threads = std::min(schedules_.size(), static_cast<std::size_t>(std::max(1, options_.workers)));
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

CompilePool::~CompilePool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<std::size_t> CompilePool::next() {
  std::unique_lock lock(mutex_);
  const std::size_t ahead = 2 * threads_.size() + 1;
  changed_.wait(lock, [&] { return stopping_ || started_ >= schedules_.size() || started_ < taken_ + ahead; });
  if (stopping_ || started_ >= schedules_.size()) return std::nullopt;
  return started_++;
}

void CompilePool::work(std::size_t thread) {
  // The worker is started by this thread, and ends with it.
  Compiler compiler;
  const auto folder = make_worker_folder(options_.folder, fmt::format("compile-{}", thread));
  if (folder) compiler.folder = *folder;
  while (const std::optional<std::size_t> i = next()) {
    PreparedCandidate candidate;
    if (folder) candidate = prepare(*i, compiler);
    else candidate.fatal = folder.error();
    const std::lock_guard lock(mutex_);
    done_[*i] = std::move(candidate);
    changed_.notify_all();
  }
}

std::optional<PreparedCandidate> CompilePool::take(std::size_t i, const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  while (!done_[i]) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (done_[i]) break;
    lock.unlock();
    const bool stopped = stop && stop();
    lock.lock();
    if (stopped) return std::nullopt;
  }
  taken_ = i + 1;
  changed_.notify_all();
  return std::exchange(done_[i], std::nullopt);
}

PreparedCandidate CompilePool::prepare(std::size_t i, Compiler& compiler) {
  const Schedule& schedule = *schedules_[i];
  const Certificate certificate = validate(make_tile_dag(deployment_, schedule), deployment_);
  if (!certificate.ok) return ended(Status::rejected, fmt::format("{}: {}", certificate.failed, certificate.counterexample));
  const auto source = emit_source(deployment_, schedule);
  if (!source) return ended(Status::compile_error, source.error().message);
  const std::filesystem::path source_file = options_.folder / fmt::format("{}.cu", schedule.plan.hash());
  if (const auto written = write_file_atomic(source_file, *source); !written) {
    PreparedCandidate candidate;
    candidate.fatal = written.error();
    return candidate;
  }
  PreparedCandidate candidate = compile(i, source_file.string(), compiler);
  candidate.certificate = hash_hex(certificate_to_json(certificate).dump());
  std::error_code ignored;
  std::filesystem::remove(source_file, ignored);
  return candidate;
}

PreparedCandidate CompilePool::compile(std::size_t i, const std::string& source_file, Compiler& compiler) {
  PreparedCandidate candidate;
  std::optional<WorkerProcess>& worker = compiler.worker;
  if (!worker || !worker->alive()) {
    auto started = WorkerProcess::start(worker_command(options_.command, compiler.folder, options_.isolate));
    if (!started) {
      candidate.fatal = started.error();
      return candidate;
    }
    worker = std::move(*started);
  }
  const std::string image_file = fmt::format("{}/{}.image", compiler.folder, schedules_[i]->plan.hash());
  const Json request = {{"do", "compile"},
                        {"source_file", source_file},
                        {"arch", options_.ptx ? ptx_arch(deployment_.target) : deployment_.target.arch()},
                        {"image_file", image_file}};
  const Reply reply = worker->ask(request, options_.deadline_seconds, [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  });
  if (reply.state == ReplyState::timeout) return ended(Status::timeout, "compilation: " + reply.detail);
  if (reply.state != ReplyState::ok) return ended(Status::crashed, "compilation: " + reply.detail);
  auto value = reply_from_json(reply.value);
  if (!value) {
    if (value.error().code != Errc::machine && value.error().code != Errc::io) {
      return ended(Status::compile_error, value.error().message);
    }
    candidate.fatal = value.error();
    return candidate;
  }
  auto compiled = compiled_from_json(JsonView(*value, "worker"));
  if (!compiled) return ended(Status::crashed, compiled.error().message);
  candidate.compiled = std::move(*compiled);
  candidate.compiled.image_file = image_file;   // never a path that a worker names: it is read, and removed in the end
  return candidate;
}

}  // namespace adamk
