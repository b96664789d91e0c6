#include "adamk/profile/timeline.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>

namespace adamk {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Anchor {
  std::uint64_t timer_ns = 0, clock = 0;
};
static_assert(sizeof(Anchor) == 16);

/// What the device left: one SM's clock as time since the launch began.
class Clocks {
 public:
  static Result<Clocks> from(std::vector<Anchor> anchors) {
    Clocks clocks;
    clocks.anchors_ = std::move(anchors);
    std::uint64_t first = ~std::uint64_t{0};
    for (std::size_t sm = 0; sm < clocks.sms(); ++sm) {
      const Anchor &begin = clocks.anchors_[2 * sm], &end = clocks.anchors_[2 * sm + 1];
      if (begin.timer_ns == 0 || end.timer_ns <= begin.timer_ns)
        return fail(Errc::machine, "timeline: SM {} began at {} ns and ended at {} ns", sm, begin.timer_ns, end.timer_ns);
      first = std::min(first, begin.timer_ns);
      clocks.ns_per_clock_.push_back(static_cast<double>(end.timer_ns - begin.timer_ns) /
                                     static_cast<double>(static_cast<std::uint32_t>(end.clock - begin.clock)));
    }
    clocks.first_ns_ = first;
    return clocks;
  }

  std::size_t sms() const { return anchors_.size() / 2; }
  std::uint32_t begin(int sm) const { return static_cast<std::uint32_t>(anchors_[2 * at(sm)].clock); }
  double us(int sm, std::uint32_t clock) const {   // the clock is 32 bits of a counter; launches are shorter than it
    const Anchor& end = anchors_[2 * at(sm) + 1];
    const auto before_end = static_cast<std::int32_t>(static_cast<std::uint32_t>(end.clock) - clock);
    return (static_cast<double>(end.timer_ns - first_ns_) - before_end * ns_per_clock_[at(sm)]) / 1e3;
  }
  double us_of(int sm, std::uint32_t clocks) const { return clocks * ns_per_clock_[at(sm)] / 1e3; }
  double mhz() const {
    return 1e3 * static_cast<double>(sms()) / std::accumulate(ns_per_clock_.begin(), ns_per_clock_.end(), 0.0);
  }

 private:
  std::vector<Anchor> anchors_;       // [SM][begin, end]
  std::vector<double> ns_per_clock_;  // [SM]
  std::uint64_t first_ns_ = 0;
};

/// Turns one warp's records, in the order of its program, into spans that follow each other.
class WarpReader {
 public:
  WarpReader(const Clocks& clocks, int sm) : clocks_(clocks), sm_(sm), last_(clocks.begin(sm)) {}

  Result<WarpStage> next(std::span<const std::uint32_t> words) {
    for (int cause = 0; cause < wait_causes; ++cause) waited_[at(cause)] += words[at(1 + cause)];
    WarpStage stage;
    const std::uint32_t end = words[0];
    if (end == 0) return stage;   // no part in it: what it waited belongs to what follows
    const std::uint32_t clocks = end - last_;
    const std::uint64_t waited = std::accumulate(waited_.begin(), waited_.end(), std::uint64_t{0});
    // The first record may have begun to wait before its SM's launcher took the time.
    if (!first_ && waited > clocks)
      return fail(Errc::machine, "timeline: a warp of SM {} waited {} of {} clocks", sm_, waited, clocks);
    stage.took_part = true;
    stage.end_us = clocks_.us(sm_, end);
    stage.begin_us = stage.end_us - clocks_.us_of(sm_, first_ ? std::max(clocks, static_cast<std::uint32_t>(waited)) : clocks);
    for (int cause = 0; cause < wait_causes; ++cause) stage.waited_us[at(cause)] = clocks_.us_of(sm_, waited_[at(cause)]);
    last_ = end;
    waited_ = {};
    first_ = false;
    return stage;
  }

 private:
  const Clocks& clocks_;
  int sm_ = 0;
  std::uint32_t last_ = 0;
  std::array<std::uint32_t, wait_causes> waited_ = {};
  bool first_ = true;
};

constexpr StageKind all_stages[] = {StageKind::qkv,     StageKind::attention, StageKind::output,
                                    StageKind::gate_up, StageKind::down,      StageKind::head};

/// When the last of some warps ended its part.
template <class Warps>
std::optional<double> last_end(const Timeline& t, int step, int layer, StageKind stage, Warps warp) {
  std::optional<double> end;
  for (int sm = 0; sm < t.sms; ++sm) {
    const WarpStage& part = t.at(step, layer, stage, sm, warp);
    if (part.took_part) end = std::max(end.value_or(part.end_us), part.end_us);
  }
  return end;
}

/// Sums and counts of what consumers did in a stage.
void add_consumers(const Timeline& t, int step, int layer, StageKind stage, StageTime& time, int& parts) {
  for (int sm = 0; sm < t.sms; ++sm)
    for (int warp = 0; warp < t.plan.consumer_warps; ++warp) {
      const WarpStage& part = t.at(step, layer, stage, sm, warp);
      if (!part.took_part) continue;
      ++parts;
      time.consumers_us += part.us();
      time.consumers_worked_us += part.worked_us();
      for (std::size_t cause = 0; cause < wait_causes; ++cause) time.consumers_waited_us[cause] += part.waited_us[cause];
    }
}

RoleTime role_time(const Timeline& t, std::string_view name, int first_warp, int warps, int first_step) {
  RoleTime role;
  role.name = name;
  for (int step = first_step; step < t.steps; ++step)
    for (int layer = 0; layer < t.layers; ++layer)
      for (const StageKind stage : all_stages)
        for (int sm = 0; sm < t.sms; ++sm)
          for (int warp = first_warp; warp < first_warp + warps; ++warp) {
            const WarpStage& part = t.at(step, layer, stage, sm, warp);
            role.worked_us += part.worked_us();
            for (std::size_t cause = 0; cause < wait_causes; ++cause) role.waited_us[cause] += part.waited_us[cause];
          }
  const double count = static_cast<double>(t.sms) * warps * (t.steps - first_step);
  role.worked_us /= count;
  for (double& us : role.waited_us) us /= count;
  return role;
}

}  // namespace

std::string_view to_string(WaitCause cause) {
  constexpr std::string_view names[] = {"input", "weights", "slot", "turn", "tiles", "buffer", "token"};
  return names[static_cast<int>(cause)];
}

double WarpStage::worked_us() const { return us() - std::accumulate(waited_us.begin(), waited_us.end(), 0.0); }

std::size_t Timeline::place(int step, int layer, StageKind stage, int sm, int warp) const {
  const std::int64_t row = (static_cast<std::int64_t>(step) * layers + layer) * TimelineLayout::stages + static_cast<int>(stage);
  return static_cast<std::size_t>((row * sms + sm) * warps + warp);
}

const WarpStage& Timeline::at(int step, int layer, StageKind stage, int sm, int warp) const {
  return records[place(step, layer, stage, sm, warp)];
}

Recipe timeline_recipe(const Deployment& deployment, const Schedule& schedule, const Kernel& instrumented) {
  Recipe recipe = make_recipe(deployment, schedule, instrumented);
  recipe.workspace_bytes = timeline_layout(deployment.model, schedule).bytes;
  return recipe;
}

Result<Timeline> record_timeline(Decoder& decoder, const Model& model, const Schedule& schedule, const TimelineOptions& options) {
  if (options.steps < 1 || options.steps > TimelineLayout::steps)
    return fail(Errc::bad_input, "timeline: steps {} is outside 1 to {}", options.steps, TimelineLayout::steps);
  const TimelineLayout layout = timeline_layout(model, schedule);
  const std::array given{1};
  for (int launch = 0; launch < options.warmup_launches; ++launch) {
    ADAMK_CHECK(decoder.decode(options.position, given, options.steps));
  }
  ADAMK_CHECK(decoder.clear_workspace(layout.anchors, layout.bytes - layout.anchors));
  ADAMK_CHECK(decoder.decode(options.position, given, options.steps));

  std::vector<Anchor> anchors(2 * at(layout.sms));
  ADAMK_CHECK(decoder.read_workspace(layout.anchors, std::as_writable_bytes(std::span(anchors))));
  std::vector<std::uint32_t> words(at(layout.bytes - layout.records) / sizeof(std::uint32_t));
  ADAMK_CHECK(decoder.read_workspace(layout.records, std::as_writable_bytes(std::span(words))));
  ADAMK_TRY(const Clocks clocks, Clocks::from(std::move(anchors)));

  Timeline timeline;
  timeline.plan = schedule.plan;
  timeline.steps = options.steps;
  timeline.layers = layout.layers;
  timeline.sms = layout.sms;
  timeline.warps = layout.warps;
  timeline.clock_mhz = clocks.mhz();
  timeline.records.resize(words.size() / TimelineLayout::words);
  for (int sm = 0; sm < layout.sms; ++sm)
    for (int warp = 0; warp < layout.warps; ++warp) {
      WarpReader reader(clocks, sm);
      for (int step = 0; step < options.steps; ++step)
        for (int layer = 0; layer < layout.layers; ++layer)
          for (const StageKind stage : all_stages) {
            const std::size_t place = timeline.place(step, layer, stage, sm, warp);
            ADAMK_TRY(timeline.records[place],
                      reader.next(std::span(words).subspan(place * TimelineLayout::words, TimelineLayout::words)));
          }
    }
  return timeline;
}

TimelineSummary summarise_timeline(const Timeline& t, const Schedule& schedule) {
  TimelineSummary summary;
  const int first_step = t.steps > 1 ? 1 : 0;
  summary.steps = t.steps - first_step;
  const auto stage_time = [&](StageKind stage) -> StageTime& {
    for (StageTime& time : summary.stages)
      if (time.name == to_string(stage)) return time;
    return summary.stages.emplace_back(StageTime{to_string(stage)});
  };
  for (const StagePlan& stage : t.plan.stages) stage_time(stage.kind);
  StageTime token{"token"};
  std::vector<int> parts(summary.stages.size());
  for (int step = first_step; step < t.steps; ++step) {
    const double begin = step == 0 ? 0 : *last_end(t, step - 1, t.layers - 1, StageKind::head, t.launcher());
    double now = begin;
    for (int layer = 0; layer < t.layers; ++layer)
      for (const StagePlan& stage : t.plan.stages) {
        const std::optional<double> end = last_end(t, step, layer, stage.kind, t.storer());
        if (!end || (stage.kind == StageKind::head) != (layer == t.layers - 1)) continue;
        StageTime& time = stage_time(stage.kind);
        time.us += *end - now;
        now = *end;
        add_consumers(t, step, layer, stage.kind, time, parts[static_cast<std::size_t>(&time - summary.stages.data())]);
      }
    const double end = *last_end(t, step, t.layers - 1, StageKind::head, t.launcher());
    token.us += end - now;
    summary.step_us += end - begin;
  }
  summary.step_us /= summary.steps;
  for (std::size_t i = 0; i < summary.stages.size(); ++i) {
    StageTime& time = summary.stages[i];
    const bool head = time.name == to_string(StageKind::head);
    time.us /= summary.steps;
    time.us_each = time.us / (head ? 1 : t.layers - 1);
    if (parts[i] == 0) continue;
    time.consumers_us /= parts[i];
    time.consumers_worked_us /= parts[i];
    for (double& us : time.consumers_waited_us) us /= parts[i];
  }
  for (const GemvShape& shape : schedule.gemvs) stage_time(shape.kind).bytes_each = static_cast<double>(shape.bytes());
  token.us /= summary.steps;
  token.us_each = token.us;
  summary.stages.push_back(token);
  summary.roles = {role_time(t, "consumer", 0, t.plan.consumer_warps, first_step), role_time(t, "loader", t.loader(), 1, first_step),
                   role_time(t, "storer", t.storer(), 1, first_step), role_time(t, "launcher", t.launcher(), 1, first_step)};
  return summary;
}

Json timeline_summary_to_json(const TimelineSummary& summary) {
  const auto waits = [](const std::array<double, wait_causes>& us) {
    Json out = Json::object();
    for (int cause = 0; cause < wait_causes; ++cause) out[std::string(to_string(static_cast<WaitCause>(cause)))] = us[at(cause)];
    return out;
  };
  Json stages = Json::array(), roles = Json::array();
  for (const StageTime& s : summary.stages)
    stages.push_back({{"stage", s.name}, {"us", s.us}, {"us_each", s.us_each}, {"bytes_each", s.bytes_each},
                      {"consumers", {{"us", s.consumers_us}, {"worked_us", s.consumers_worked_us}, {"waited_us", waits(s.consumers_waited_us)}}}});
  for (const RoleTime& r : summary.roles)
    roles.push_back({{"role", r.name}, {"worked_us", r.worked_us}, {"waited_us", waits(r.waited_us)}});
  return {{"steps", summary.steps}, {"step_us", summary.step_us}, {"stages", stages}, {"roles", roles}};
}

Result<Json> timeline_trace(const Timeline& t, const std::vector<int>& sms) {
  Json events = Json::array();
  for (const int sm : sms) {
    if (sm < 0 || sm >= t.sms) return fail(Errc::bad_input, "timeline: SM {} is outside 0 to {}", sm, t.sms - 1);
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", sm}, {"args", {{"name", "SM " + std::to_string(sm)}}}});
    for (int warp = 0; warp < t.warps; ++warp) {
      const std::string name = warp == t.loader()     ? "loader"
                               : warp == t.storer()   ? "storer"
                               : warp == t.launcher() ? "controller and launcher"
                                                      : "consumer " + std::to_string(warp);
      events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", sm}, {"tid", warp}, {"args", {{"name", name}}}});
      for (int step = 0; step < t.steps; ++step)
        for (int layer = 0; layer < t.layers; ++layer)
          for (const StageKind stage : all_stages) {
            const WarpStage& part = t.at(step, layer, stage, sm, warp);
            if (!part.took_part) continue;
            Json args = {{"step", step}, {"layer", layer}, {"worked_us", part.worked_us()}};
            for (int cause = 0; cause < wait_causes; ++cause) {
              const double us = part.waited_us[at(cause)];
              if (us > 0) args[std::string(to_string(static_cast<WaitCause>(cause))) + "_us"] = us;
            }
            events.push_back({{"ph", "X"}, {"name", to_string(stage)}, {"cat", "stage"}, {"pid", sm}, {"tid", warp},
                              {"ts", part.begin_us}, {"dur", part.us()}, {"args", args}});
          }
    }
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", events}};
}

}  // namespace adamk
