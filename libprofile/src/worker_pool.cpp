#include "worker_pool.h"

#include <algorithm>

namespace adamk {

WorkerPool::WorkerPool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int index = 1; index < threads; ++index) workers_.emplace_back([this, index] { work(index); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
}   // the threads join as workers_ is destroyed, before the members they use

void WorkerPool::run_part(const Job& job, int part) {
  const std::int64_t first = job.count * part / job.parts, last = job.count * (part + 1) / job.parts;
  if (first < last) (*job.body)(first, last);
}

void WorkerPool::for_ranges(std::int64_t count, std::int64_t smallest_range,
                            const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t useful = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, smallest_range));
  const Job job{&body, count, static_cast<int>(std::min<std::int64_t>(threads(), useful))};
  if (job.parts == 1) return run_part(job, 0);
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    running_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  started_.notify_all();
  run_part(job, 0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return running_ == 0; });
}

void WorkerPool::work(int index) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    const Job job = job_;
    lock.unlock();
    if (index < job.parts) run_part(job, index);
    lock.lock();
    if (--running_ == 0) finished_.notify_one();
  }
}

}  // namespace adamk
