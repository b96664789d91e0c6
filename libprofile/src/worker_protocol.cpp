#include "worker_protocol.h"

#include <array>
#include <utility>

namespace adamk {
namespace {

constexpr std::array<std::pair<Errc, std::string_view>, 8> codes = {{{Errc::bad_input, "bad_input"},
                                                                     {Errc::unsupported, "unsupported"},
                                                                     {Errc::infeasible, "infeasible"},
                                                                     {Errc::check_failed, "check_failed"},
                                                                     {Errc::not_found, "not_found"},
                                                                     {Errc::io, "io"},
                                                                     {Errc::machine, "machine"},
                                                                     {Errc::interrupted, "interrupted"}}};

/// Readers of members that say which one is wrong.
Result<double> number(const JsonView& view, const char* key) {
  ADAMK_TRY(const JsonView member, view.at(key));
  return member.number();
}
Result<std::int64_t> integer(const JsonView& view, const char* key) {
  ADAMK_TRY(const JsonView member, view.at(key));
  return member.integer();
}
Result<int> small(const JsonView& view, const char* key) {
  ADAMK_TRY(const JsonView member, view.at(key));
  ADAMK_TRY(const std::int64_t value, member.integer(-2147483647, 2147483647));
  return static_cast<int>(value);
}
Result<std::string> text(const JsonView& view, const char* key) {
  ADAMK_TRY(const JsonView member, view.at(key));
  return member.text();
}
/// As text: JSON numbers of other writers stop at 2^53.
Result<std::uint64_t> seed(const JsonView& view, const char* key) {
  ADAMK_TRY(const std::string digits, text(view, key));
  std::uint64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return tl::unexpected(view.error(Errc::bad_input, fmt::format("{} is no number", key)));
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

}  // namespace

Json reply_to_json(const Result<Json>& result) {
  if (result) return {{"ok", true}, {"value", *result}};
  std::string_view name = "machine";
  for (const auto& [code, spelling] : codes) {
    if (code == result.error().code) name = spelling;
  }
  return {{"ok", false}, {"code", std::string(name)}, {"message", result.error().message}};
}

Result<Json> reply_from_json(const Json& reply) {
  const JsonView view(reply, "worker");
  ADAMK_TRY(const JsonView ok, view.at("ok"));
  ADAMK_TRY(const bool good, ok.boolean());
  if (good) {
    ADAMK_TRY(const JsonView value, view.at("value"));
    return value.value();
  }
  ADAMK_TRY(const std::string name, text(view, "code"));
  ADAMK_TRY(const std::string message, text(view, "message"));
  for (const auto& [code, spelling] : codes) {
    if (name == spelling) return tl::unexpected(Error{code, message});
  }
  return fail(Errc::machine, "worker: unknown code '{}'", name);
}

Json identity_to_json(const DeviceIdentity& d) {
  return {{"name", d.name},         {"sm", d.sm},           {"sms", d.sms},
          {"driver", d.driver},     {"toolkit", d.toolkit}, {"memory_bytes", d.memory_bytes},
          {"clock_mhz", d.clock_mhz}, {"read_gbps", d.read_gbps}, {"hop_us", d.hop_us}};
}

Result<DeviceIdentity> identity_from_json(const JsonView& view) {
  DeviceIdentity d;
  ADAMK_TRY(d.name, text(view, "name"));
  ADAMK_TRY(d.sm, small(view, "sm"));
  ADAMK_TRY(d.sms, small(view, "sms"));
  ADAMK_TRY(d.driver, text(view, "driver"));
  ADAMK_TRY(d.toolkit, text(view, "toolkit"));
  ADAMK_TRY(d.memory_bytes, integer(view, "memory_bytes"));
  ADAMK_TRY(d.clock_mhz, number(view, "clock_mhz"));
  ADAMK_TRY(d.read_gbps, number(view, "read_gbps"));
  ADAMK_TRY(d.hop_us, number(view, "hop_us"));
  return d;
}

Json verdict_to_json(const Verdict& v) {
  return {{"checked", v.checked},     {"positions", v.positions}, {"tokens", v.tokens},
          {"near_ties", v.near_ties}, {"max_error", v.max_error}, {"tolerance", v.tolerance}};
}

Result<Verdict> verdict_from_json(const JsonView& view) {
  Verdict v;
  ADAMK_TRY(const JsonView checked, view.at("checked"));
  ADAMK_TRY(v.checked, checked.boolean());
  ADAMK_TRY(v.positions, small(view, "positions"));
  ADAMK_TRY(v.tokens, small(view, "tokens"));
  ADAMK_TRY(v.near_ties, small(view, "near_ties"));
  ADAMK_TRY(v.max_error, number(view, "max_error"));
  ADAMK_TRY(v.tolerance, number(view, "tolerance"));
  return v;
}

Json timing_options_to_json(const TimingOptions& o) {
  return {{"position", o.position},
          {"steps", o.steps},
          {"warmup_launches", o.warmup_launches},
          {"batch_launches", o.batch_launches},
          {"min_samples", o.min_samples},
          {"max_samples", o.max_samples},
          {"relative_error", o.relative_error},
          {"max_seconds", o.max_seconds},
          {"max_discards", o.max_discards},
          {"discard_wait_seconds", o.discard_wait_seconds},
          {"use_cupti", o.use_cupti}};
}

Result<TimingOptions> timing_options_from_json(const JsonView& view) {
  TimingOptions o;
  ADAMK_TRY(o.position, integer(view, "position"));
  ADAMK_TRY(o.steps, small(view, "steps"));
  ADAMK_TRY(o.warmup_launches, small(view, "warmup_launches"));
  ADAMK_TRY(o.batch_launches, small(view, "batch_launches"));
  ADAMK_TRY(o.min_samples, small(view, "min_samples"));
  ADAMK_TRY(o.max_samples, small(view, "max_samples"));
  ADAMK_TRY(o.relative_error, number(view, "relative_error"));
  ADAMK_TRY(o.max_seconds, number(view, "max_seconds"));
  ADAMK_TRY(o.max_discards, small(view, "max_discards"));
  ADAMK_TRY(o.discard_wait_seconds, number(view, "discard_wait_seconds"));
  ADAMK_TRY(const JsonView use_cupti, view.at("use_cupti"));
  ADAMK_TRY(o.use_cupti, use_cupti.boolean());
  return o;
}

Json weights_source_to_json(const WeightsSource& source) {
  if (source.random_seed) return {{"random_seed", std::to_string(*source.random_seed)}};
  return {{"folder", source.folder.string()}};
}

Result<WeightsSource> weights_source_from_json(const JsonView& view) {
  WeightsSource source;
  if (view.has("random_seed")) {
    ADAMK_TRY(source.random_seed, seed(view, "random_seed"));
  } else {
    ADAMK_TRY(const std::string folder, text(view, "folder"));
    source.folder = folder;
  }
  return source;
}

Json emulation_to_json(const Emulation& emulation) {
  return {{"target", target_to_json(emulation.target)}, {"seed", std::to_string(emulation.seed)}};
}

Result<Emulation> emulation_from_json(const JsonView& view) {
  Emulation emulation;
  ADAMK_TRY(const JsonView target, view.at("target"));
  ADAMK_TRY(emulation.target, target_from_json(target));
  ADAMK_TRY(emulation.seed, seed(view, "seed"));
  return emulation;
}

std::map<std::string, double> counters_from_json(const Json& counters) {
  std::map<std::string, double> read;
  for (const auto& [name, value] : counters.items())
    if (value.is_number()) read[name] = value.get<double>();
  return read;
}

Json compiled_to_json(const CompiledCandidate& c) {
  const KernelResources& r = c.resources;
  return {{"source_hash", r.source_hash}, {"cubin_hash", r.cubin_hash}, {"arch", r.arch},
          {"registers", r.registers},     {"spill_bytes", r.spill_bytes}, {"code_bytes", r.code_bytes},
          {"seconds", r.compile_seconds}, {"image_file", c.image_file}};
}

Result<CompiledCandidate> compiled_from_json(const JsonView& view) {
  CompiledCandidate c;
  KernelResources& r = c.resources;
  ADAMK_TRY(r.source_hash, text(view, "source_hash"));
  ADAMK_TRY(r.cubin_hash, text(view, "cubin_hash"));
  ADAMK_TRY(r.arch, text(view, "arch"));
  ADAMK_TRY(r.registers, small(view, "registers"));
  ADAMK_TRY(r.spill_bytes, small(view, "spill_bytes"));
  ADAMK_TRY(r.code_bytes, integer(view, "code_bytes"));
  ADAMK_TRY(r.compile_seconds, number(view, "seconds"));
  ADAMK_TRY(c.image_file, text(view, "image_file"));
  return c;
}

Json timed_to_json(const TimedCandidate& t) {
  return {{"method", std::string(to_string(t.method))},
          {"samples_us", t.samples_us},
          {"bytes_per_token", t.bytes_per_token},
          {"clock_mhz", t.conditions.clock_mhz},
          {"throttled", t.conditions.throttled},
          {"wrong", t.wrong}};
}

Result<TimedCandidate> timed_from_json(const JsonView& view) {
  TimedCandidate t;
  ADAMK_TRY(const std::string method, text(view, "method"));
  ADAMK_TRY(t.method, parse_method(method));
  ADAMK_TRY(const JsonView samples, view.at("samples_us"));
  ADAMK_TRY(const std::vector<JsonView> items, samples.items());
  for (const JsonView& item : items) {
    ADAMK_TRY(const double us, item.number());
    t.samples_us.push_back(us);
  }
  ADAMK_TRY(t.bytes_per_token, number(view, "bytes_per_token"));
  ADAMK_TRY(t.conditions.clock_mhz, number(view, "clock_mhz"));
  ADAMK_TRY(t.conditions.throttled, small(view, "throttled"));
  ADAMK_TRY(t.wrong, text(view, "wrong"));
  return t;
}

}  // namespace adamk
