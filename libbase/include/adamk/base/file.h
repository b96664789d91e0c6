// Files: read whole with a bound, mapped read-only, or written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "adamk/base/result.h"

namespace adamk {

/// The whole file as text. Fails (bad_input) past `max_bytes`, (io) when it cannot be read.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// A read-only mapping of a whole file; moves, does not copy; unmapped on destruction. An empty file maps to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Writes to a temporary name beside `path`; commit() flushes to disk and renames. Destroyed without commit: removed.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> commit();

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

Result<void> write_file_atomic(const std::filesystem::path& path, std::string_view text);

}  // namespace adamk
