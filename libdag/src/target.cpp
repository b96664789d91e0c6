#include "adamk/dag/target.h"

#include <algorithm>

namespace adamk {
namespace {

constexpr std::string_view format_name = "adamk.target";
constexpr int format_version = 1;
constexpr int known_sms[] = {80, 86, 89, 90, 100, 120};
constexpr std::int64_t tebibyte = std::int64_t{1} << 40;

/// A member that must be there, in [low, high].
template <class Integer>
Result<void> read(const JsonView& root, Integer& field, std::string_view key, std::int64_t low, std::int64_t high) {
  ADAMK_TRY(const JsonView view, root.at(key));
  ADAMK_TRY(const std::int64_t value, view.integer(low, high));
  field = static_cast<Integer>(value);
  return {};
}

Result<void> read(const JsonView& root, double& field, std::string_view key, double low, double high) {
  ADAMK_TRY(const JsonView view, root.at(key));
  ADAMK_TRY(field, view.number(low, high));
  return {};
}

Result<void> read_limits(const JsonView& root, Target& target) {
  ADAMK_CHECK(read(root, target.sms, "sms", 1, 4096));
  ADAMK_CHECK(read(root, target.smem_per_block, "smem_per_block", 16 << 10, 16 << 20));
  ADAMK_CHECK(read(root, target.smem_per_sm, "smem_per_sm", 16 << 10, 16 << 20));
  ADAMK_CHECK(read(root, target.smem_reserved, "smem_reserved", 0, 64 << 10));
  if (root.has("registers_per_sm")) {
    ADAMK_CHECK(read(root, target.registers_per_sm, "registers_per_sm", 1024, 1 << 20));
  }
  if (root.has("max_threads_per_block")) {
    ADAMK_CHECK(read(root, target.max_threads_per_block, "max_threads_per_block", 32, 1 << 16));
  }
  ADAMK_CHECK(read(root, target.l2_bytes, "l2_bytes", 1, tebibyte));
  ADAMK_CHECK(read(root, target.memory_bytes, "memory_bytes", 1, 1024 * tebibyte));
  if (target.smem_per_block + target.smem_reserved > target.smem_per_sm) {
    return tl::unexpected(
        root.error(Errc::bad_input, fmt::format("smem_per_block {} and smem_reserved {} are more than smem_per_sm {}",
                                                target.smem_per_block, target.smem_reserved, target.smem_per_sm)));
  }
  return {};
}

}  // namespace

std::string Target::arch() const { return sm == 90 ? "sm_90a" : fmt::format("sm_{}", sm); }

Result<Target> target_from_json(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, format_name, format_version));
  ADAMK_CHECK(root.only_keys({"format", "version", "name", "product", "sm", "sms", "smem_per_block", "smem_per_sm",
                              "smem_reserved", "registers_per_sm", "max_threads_per_block", "l2_bytes", "memory_bytes",
                              "read_gbps", "hop_us", "clock_mhz", "measured"}));
  Target target;
  ADAMK_TRY(const JsonView name, root.at("name"));
  ADAMK_TRY(target.name, name.text());
  ADAMK_TRY(const JsonView product, root.at("product"));
  ADAMK_TRY(target.product, product.text());
  ADAMK_TRY(const JsonView sm, root.at("sm"));
  ADAMK_TRY(const std::int64_t capability, sm.integer(0, 999));
  if (std::find(std::begin(known_sms), std::end(known_sms), capability) == std::end(known_sms)) {
    return tl::unexpected(sm.error(
        Errc::unsupported, fmt::format("sm {} is not supported, only {}", capability, fmt::join(known_sms, ", "))));
  }
  target.sm = static_cast<int>(capability);
  ADAMK_CHECK(read_limits(root, target));
  ADAMK_CHECK(read(root, target.read_gbps, "read_gbps", 1.0, 1e6));
  ADAMK_CHECK(read(root, target.hop_us, "hop_us", 0.01, 1e3));
  ADAMK_CHECK(read(root, target.clock_mhz, "clock_mhz", 1.0, 1e5));
  if (const auto measured = root.find("measured")) {
    ADAMK_TRY(target.measured, measured->boolean());
  }
  return target;
}

Json target_to_json(const Target& target) {
  return {{"format", format_name},
          {"version", format_version},
          {"name", target.name},
          {"product", target.product},
          {"sm", target.sm},
          {"sms", target.sms},
          {"smem_per_block", target.smem_per_block},
          {"smem_per_sm", target.smem_per_sm},
          {"smem_reserved", target.smem_reserved},
          {"registers_per_sm", target.registers_per_sm},
          {"max_threads_per_block", target.max_threads_per_block},
          {"l2_bytes", target.l2_bytes},
          {"memory_bytes", target.memory_bytes},
          {"read_gbps", target.read_gbps},
          {"hop_us", target.hop_us},
          {"clock_mhz", target.clock_mhz},
          {"measured", target.measured}};
}

}  // namespace adamk
