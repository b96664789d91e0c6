#include "worker_isolation.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace adamk {
namespace {

namespace fs = std::filesystem;

// ---- Landlock. The kernel's header of the machine this is compiled on may be older than the kernel it runs on, so the few
// numbers are here (Documentation/userspace-api/landlock.rst; the system calls have these numbers on every architecture).

constexpr long create_ruleset_call = 444, add_rule_call = 445, restrict_self_call = 446;

enum FileRight : std::uint64_t {
  execute = 1u << 0, write_file = 1u << 1, remove_dir = 1u << 4, remove_file = 1u << 5, make_char = 1u << 6,
  make_dir = 1u << 7, make_reg = 1u << 8, make_sock = 1u << 9, make_fifo = 1u << 10, make_block = 1u << 11,
  make_sym = 1u << 12, refer = 1u << 13, truncate_file = 1u << 14, ioctl_dev = 1u << 15,
};

struct RulesetAttributes {
  std::uint64_t files = 0, network = 0, scoped = 0;
};

struct [[gnu::packed]] PathRule {
  std::uint64_t allowed = 0;
  std::int32_t parent = -1;
};
constexpr int path_beneath = 1;

/// Everything that writes, in the words of the kernel's version of the interface; reading stays free.
RulesetAttributes handled(long version) {
  RulesetAttributes rights;
  rights.files = execute | write_file | remove_dir | remove_file | make_char | make_dir | make_reg | make_sock | make_fifo |
                 make_block | make_sym;
  if (version >= 2) rights.files |= refer;
  if (version >= 3) rights.files |= truncate_file;
  if (version >= 4) rights.network = 3;   // bind and connect of TCP
  if (version >= 5) rights.files |= ioctl_dev;
  if (version >= 6) rights.scoped = 3;    // abstract Unix sockets, signals
  return rights;
}

class Ruleset {
 public:
  explicit Ruleset(const RulesetAttributes& rights) : rights_(rights) {
    descriptor_ = static_cast<int>(syscall(create_ruleset_call, &rights_, sizeof rights_, 0));
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;
  ~Ruleset() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  bool made() const { return descriptor_ >= 0; }

  /// False when the path is not there, or the kernel refuses the rule.
  bool allow(const fs::path& path, std::uint64_t rights) const {
    const int parent = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (parent < 0) return false;
    const PathRule rule{rights & rights_.files, parent};
    const bool added = syscall(add_rule_call, descriptor_, path_beneath, &rule, 0) == 0;
    close(parent);
    return added;
  }
  bool enter() const { return syscall(restrict_self_call, descriptor_, 0) == 0; }

 private:
  RulesetAttributes rights_;
  int descriptor_ = -1;
};

/// Nodes through which the driver speaks to GPUs (/dev/dxg: WSL), and the pipes of a Multi-Process Service that is running.
void allow_devices(const Ruleset& rules) {
  constexpr std::uint64_t device = write_file | truncate_file | ioctl_dev;
  rules.allow("/dev/null", device);
  rules.allow("/dev/zero", device);
  rules.allow("/dev/dxg", device);
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", code)) {
    if (entry.path().filename().string().starts_with("nvidia")) rules.allow(entry.path(), device);
  }
  // cuInit opens files of its own threads there (their names) for writing and fails when it cannot (seen with driver 580).
  rules.allow("/proc/self/task", write_file | truncate_file);
  const char* pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  rules.allow(pipes != nullptr ? pipes : "/tmp/nvidia-mps", write_file);
}

/// The interface's version that now holds, or 0 with errno.
long enter_landlock(const fs::path& scratch) {
  const long version = syscall(create_ruleset_call, nullptr, 0, 1);
  if (version <= 0) return 0;
  const RulesetAttributes rights = handled(version);
  const Ruleset rules(rights);
  if (!rules.made() || !rules.allow(scratch, rights.files & ~std::uint64_t{execute | ioctl_dev})) return 0;
  allow_devices(rules);
  return rules.enter() ? version : 0;
}

// ---- seccomp

#if defined(__x86_64__)
constexpr std::uint32_t this_arch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t this_arch = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t this_arch = 0;
#endif

/// Refused whatever their arguments. Landlock knows nothing of a file's mode, owner and times, nor of other processes.
constexpr std::uint32_t refused_calls[] = {
#ifdef __NR_fork
    __NR_fork, __NR_vfork, __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
    __NR_execve, __NR_execveat, __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_tkill, __NR_fchmod,
    __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_setxattr, __NR_lsetxattr, __NR_fsetxattr,
    __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr, __NR_mount, __NR_umount2, __NR_pivot_root, __NR_chroot,
    __NR_unshare, __NR_setns, __NR_bpf, __NR_perf_event_open, __NR_add_key, __NR_request_key, __NR_keyctl, __NR_init_module,
    __NR_finit_module, __NR_delete_module, __NR_kexec_load, __NR_reboot, __NR_swapon, __NR_swapoff, __NR_acct, __NR_quotactl,
    // Younger than some headers: 424 pidfd_send_signal, 428 to 433 the new mount calls, 438 pidfd_getfd, 452 fchmodat2.
    424, 428, 429, 430, 431, 432, 433, 438, 452};

/// Answered as by a kernel without them: clone3, whose flags a filter cannot see (the C library falls back to clone), and
/// io_uring_setup (425), which would pass every filter by.
constexpr std::uint32_t absent_calls[] = {435, 425};

constexpr std::uint32_t refuse(int code) { return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(code); }

class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    unless_equal(this_arch, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);   // the x32 calls: other numbers for the same
    add(BPF_RET | BPF_K, refuse(EPERM));
#endif
    for (const std::uint32_t call : refused_calls) if_equal(call, refuse(EPERM));
    for (const std::uint32_t call : absent_calls) if_equal(call, refuse(ENOSYS));
    only_with(__NR_socket, BPF_JEQ, AF_UNIX, EACCES);
    only_with(__NR_clone, BPF_JSET, CLONE_THREAD, EPERM);
    for (const std::uint32_t call : {__NR_kill, __NR_tgkill, __NR_rt_sigqueueinfo, __NR_rt_tgsigqueueinfo}) {
      only_with(call, BPF_JEQ, static_cast<std::uint32_t>(getpid()), EPERM);
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }

  bool enter() {
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  void add(unsigned int operation, std::uint32_t value, std::uint8_t yes = 0, std::uint8_t no = 0) {
    code_.push_back({static_cast<std::uint16_t>(operation), yes, no, value});
  }
  void load(std::size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)); }
  void if_equal(std::uint32_t value, std::uint32_t verdict) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    add(BPF_RET | BPF_K, verdict);
  }
  void unless_equal(std::uint32_t value, std::uint32_t verdict) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    add(BPF_RET | BPF_K, verdict);
  }
  /// `call` passes when its first argument (its low word: flags, a family, a process) compares with `value`.
  void only_with(std::uint32_t call, unsigned int comparison, std::uint32_t value, int otherwise) {
    add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    load(offsetof(seccomp_data, args));
    add(BPF_JMP | comparison | BPF_K, value, 1, 0);
    add(BPF_RET | BPF_K, refuse(otherwise));
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }

  std::vector<sock_filter> code_;
};

// ---- the rest

/// Where the driver's module is loaded on demand, libcuda starts a set-uid program that makes the device nodes: the one
/// program a worker would have to run. A child does that before anything is given up; it costs nothing where they are there.
void make_device_nodes() {
  std::error_code ignored;
  if (fs::exists("/dev/nvidia-uvm", ignored) || fs::exists("/dev/dxg", ignored)) return;
  const pid_t child = fork();
  if (child == 0) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    auto* initialise = library == nullptr ? nullptr : reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    if (initialise != nullptr) initialise(0);
    _exit(0);
  }
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void limit(decltype(RLIMIT_CORE) resource, rlim_t bytes) {
  rlimit now{};
  if (getrlimit(resource, &now) != 0) return;
  const rlim_t lower = now.rlim_max == RLIM_INFINITY || now.rlim_max > bytes ? bytes : now.rlim_max;
  const rlimit wanted{lower, lower};
  setrlimit(resource, &wanted);
}

}  // namespace

Result<std::string> isolate_worker(const fs::path& scratch) {
  std::error_code code;
  if (!fs::is_directory(scratch, code)) return fail(Errc::io, "{}: no folder for a worker to write to", scratch.string());
  setenv("TMPDIR", scratch.c_str(), 1);
  setenv("CUDA_CACHE_PATH", (scratch / "cuda-cache").c_str(), 1);
  make_device_nodes();

  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, rlim_t{4} << 30);
  signal(SIGXFSZ, SIG_IGN);   // a write beyond the limit fails; it does not end the worker
  std::vector<std::string> applied, missing;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "none (new privileges cannot be given up)";
  if (const long version = enter_landlock(scratch)) applied.push_back(fmt::format("landlock {}", version));
  else missing.push_back(fmt::format("no landlock ({})", std::strerror(errno)));
  if (this_arch == 0) missing.emplace_back("no seccomp (no filter for this architecture)");
  else if (Filter().enter()) applied.emplace_back("seccomp");
  else missing.push_back(fmt::format("no seccomp ({})", std::strerror(errno)));
  if (applied.empty()) applied.emplace_back("none");
  return fmt::format("{}{}{}", fmt::join(applied, ", "), missing.empty() ? "" : "; ", fmt::join(missing, ", "));
}

}  // namespace adamk
