#include "adamk/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace adamk {
namespace {

/// "cannot open a/b: No such file or directory", with errno's text.
tl::unexpected<Error> system_failure(std::string_view action, const std::filesystem::path& path) {
  const std::string reason = std::generic_category().message(errno);
  return fail(Errc::io, "cannot {} {}: {}", action, path.string(), reason);
}

/// Closes a descriptor when the function that opened it returns.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

/// Makes the rename itself durable. Some file systems refuse to sync a folder; the file's content is safe by then.
void sync_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) ::fsync(descriptor.get());
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) return system_failure("open", path);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return system_failure("read", path);
  if (S_ISDIR(status.st_mode)) return fail(Errc::io, "cannot read {}: it is a folder", path.string());

  // Read until the end and do not trust the stated size: the file may grow, or be a pipe.
  std::string text;
  constexpr std::size_t piece = 1u << 16;
  for (;;) {
    const std::size_t filled = text.size();
    text.resize(filled + piece);
    const ssize_t got = ::read(descriptor.get(), text.data() + filled, piece);
    if (got < 0 && errno == EINTR) {
      text.resize(filled);
      continue;
    }
    if (got < 0) return system_failure("read", path);
    text.resize(filled + static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      return fail(Errc::bad_input, "{}: larger than {} bytes, the most that is read here", path.string(), max_bytes);
    }
    if (got == 0) return text;
  }
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) return system_failure("open", path);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return system_failure("read", path);
  if (!S_ISREG(status.st_mode)) return fail(Errc::io, "cannot map {}: not a regular file", path.string());

  MappedFile file;
  if (status.st_size == 0) return file;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (data == MAP_FAILED) return system_failure("map", path);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  if (!path.has_filename()) return fail(Errc::bad_input, "cannot write '{}': it names no file", path.string());
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    return fail(Errc::io, "cannot write {}: it is a folder", path.string());
  }
  AtomicFile file;
  file.path_ = path;
  // O_EXCL settles races between threads and leftovers of a killed process; mkstemp would ignore the umask.
  constexpr int attempts = 1000;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    file.temporary_ = path;
    file.temporary_ += fmt::format(".tmp-{}-{}", ::getpid(), attempt);
    file.descriptor_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (file.descriptor_ < 0) return system_failure("write", path);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) return fail(Errc::io, "cannot write {}: already committed", path_.string());
  while (!bytes.empty()) {
    // Linux writes at most about 2 GiB a call, so stay below it.
    const std::size_t piece = std::min<std::size_t>(bytes.size(), 1u << 30);
    const ssize_t written = ::write(descriptor_, bytes.data(), piece);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_failure("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> AtomicFile::commit() {
  if (descriptor_ < 0) return fail(Errc::io, "cannot write {}: already committed", path_.string());
  if (::fsync(descriptor_) != 0) return system_failure("flush", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_failure("write", path_);
  // The content is on disk under its final name: a failing close has nothing left to lose.
  ::close(std::exchange(descriptor_, -1));
  sync_folder(path_);
  return {};
}

Result<void> write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  ADAMK_TRY(AtomicFile file, AtomicFile::create(path));
  ADAMK_CHECK(file.write(std::as_bytes(std::span(text.data(), text.size()))));
  return file.commit();
}

}  // namespace adamk
