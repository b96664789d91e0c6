#include "adamk/runtime/arch.h"

#include <charconv>

namespace adamk {
namespace {

struct Arch {
  bool ptx = false;
  int sm = 0;
  char suffix = '\0';  // 'a', 'f' or none
};

Result<Arch> parse_arch(std::string_view text) {
  Arch arch;
  std::string_view rest = text;
  if (rest.starts_with("compute_")) {
    arch.ptx = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("sm_")) {
    rest.remove_prefix(3);
  } else {
    return fail(Errc::bad_input, "arch: '{}' is neither sm_NN nor compute_NN", text);
  }
  const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), arch.sm);
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (rest == "a" || rest == "f") arch.suffix = rest[0];
  if (code != std::errc{} || arch.sm < 10 || (!rest.empty() && arch.suffix == '\0')) {
    return fail(Errc::bad_input, "arch: '{}' is neither sm_NN nor compute_NN", text);
  }
  return arch;
}

}  // namespace

Result<void> check_arch(std::string_view text, const DeviceInfo& device) {
  ADAMK_TRY(const Arch arch, parse_arch(text));
  const bool same_major = arch.sm / 10 == device.sm / 10;
  const bool at_least = device.sm >= arch.sm;
  bool runs = false;
  const char* where = "";
  if (arch.suffix == 'a') {
    runs = device.sm == arch.sm;
    where = "exactly that architecture";
  } else if (arch.suffix == 'f' || !arch.ptx) {
    runs = same_major && at_least;
    where = "the same major version, that minor version or later";
  } else {
    runs = at_least;
    where = "that architecture or later";
  }
  if (runs) return {};
  return fail(Errc::machine, "the kernel was compiled for {} ({}), this GPU is {} (sm_{}): export it for this GPU with "
              "--arch", text, where, device.name, device.sm);
}

}  // namespace adamk
