// A loop over independent pieces on all cores, for work that runs once per command (loading, generating, hashing).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace adamk {

/// Calls body(i) once for every i in [0, count), in any order, from several threads; returns when all are done.
/// `body` must not throw and must write nothing that another piece reads or writes.
template <class Body>
void parallel_for(std::size_t count, const Body& body) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t threads = std::min(cores, count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
  };
  std::vector<std::jthread> workers;
  for (std::size_t t = 1; t < threads; ++t) workers.emplace_back(work);
  work();
}

}  // namespace adamk
