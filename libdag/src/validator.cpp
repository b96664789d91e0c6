#include "adamk/dag/validator.h"

#include <fmt/ranges.h>

#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "adamk/base/hash.h"
#include "validator_checks.h"
#include "validator_run.h"

namespace adamk {
namespace validation {
namespace {

/// What the consumer needs beside its accumulators: fewer registers than this and no useful kernel compiles without spills.
constexpr int kFewestRegisters = 64;

std::vector<std::string> expected_stages(bool fused_attention) {
  std::vector<std::string> names = {"embedding", "qkv", "attention", "output", "gate_up", "down", "head", "argmax"};
  if (fused_attention) std::erase(names, "attention");
  return names;
}

Counterexample check_tensor_sizes(const Subject& s) {
  const Model& model = s.model();
  const std::int64_t q = model.q_rows(), kv = model.kv_rows(), hidden = model.hidden;
  std::vector<std::pair<std::string, std::int64_t>> sizes = {
      {"residual", hidden}, {"hidden", hidden}, {"hidden_mid", hidden}, {"embedding_row", hidden},
      {"token", s.dag.resources.grid}, {"next_token", s.dag.resources.grid}, {"embedding.weight", model.vocab * hidden},
      {"qkv", q + 2 * kv},  {"logits", model.vocab}, {"argmax", s.dag.resources.grid},
      {"kv_cache", 2 * kv * s.deployment.workload.context}};
  for (const auto& name : {"qkv", "output", "gate_up", "down", "head"}) {
    const MatrixSize size = matrix_size(model, name);
    const bool packed = std::string(name) == "head" && model.tied_head;
    sizes.push_back({std::string(name) + (packed ? ".weight.packed" : ".weight"), size.rows * size.k});
  }
  for (const auto& [name, elements] : sizes) {
    const int id = s.dag.find_tensor(name);
    if (id < 0) return fmt::format("there is no tensor '{}'", name);
    if (s.tensor(id).elements != elements)
      return fmt::format("tensor '{}' has {} elements, but the model needs {}", name, s.tensor(id).elements, elements);
  }
  const int ffn = s.dag.find_tensor("ffn");
  if (ffn < 0) return "there is no tensor 'ffn'";
  if (s.tensor(ffn).elements != model.ffn && s.tensor(ffn).elements != 2 * std::int64_t{model.ffn})
    return fmt::format("tensor 'ffn' has {} elements, but the model needs {} (SiLU fused) or {}", s.tensor(ffn).elements,
                       model.ffn, 2 * std::int64_t{model.ffn});
  if (s.fused_attention) return {};
  const int attention = s.dag.find_tensor("attention"), sums = s.dag.find_tensor("attention_sums");
  if (attention < 0) return "there is no tensor 'attention'";
  if (s.tensor(attention).elements % q != 0 || s.tensor(attention).elements == 0)
    return fmt::format("tensor 'attention' has {} elements, no multiple of {} heads x {}", s.tensor(attention).elements,
                       model.heads, model.head_dim);
  const std::int64_t splits = s.tensor(attention).elements / q;
  if (splits > 1 && sums < 0) return fmt::format("{} splits, but there is no tensor 'attention_sums'", splits);
  if (splits > 1 && s.tensor(sums).elements != splits * model.heads)
    return fmt::format("tensor 'attention_sums' has {} elements, but {} splits of {} heads need {}",
                       s.tensor(sums).elements, splits, model.heads, splits * model.heads);
  return {};
}

}  // namespace

std::string describe(const DagStage& stage, const TaskRange& range, int i) {
  return fmt::format("{} {} task {} on SM {}", stage.name, to_string(range.role), range.first + i, range.sm);
}

std::string describe(const Subject& subject, const Region& region) {
  std::string text = fmt::format("{}[{}, {})", subject.tensor(region.tensor).name, region.begin, region.end);
  if (region.parts > 1) text += fmt::format(" part {} of {}", region.part, region.parts);
  return text;
}

MatrixSize matrix_size(const Model& model, const std::string& stage) {
  const std::int64_t hidden = model.hidden, ffn = model.ffn;
  if (stage == "qkv") return {model.q_rows() + 2 * std::int64_t{model.kv_rows()}, hidden};
  if (stage == "output") return {hidden, model.q_rows()};
  if (stage == "gate_up") return {2 * ffn, hidden};
  if (stage == "down") return {hidden, ffn};
  if (stage == "head") return {model.vocab, hidden};
  return {};
}

std::int64_t values_out(const Subject& subject, const std::string& stage) {
  const std::int64_t rows = matrix_size(subject.model(), stage).rows;
  return stage == "gate_up" && subject.fused_silu ? rows / 2 : rows;
}

Counterexample check_structure(const Subject& s) {
  if (s.dag.layers != s.model().layers)
    return fmt::format("the layer template is counted {} times, but the model has {} layers", s.dag.layers,
                       s.model().layers);
  const std::vector<std::string> expected = expected_stages(s.fused_attention);
  if (s.dag.stages.size() != expected.size())
    return fmt::format("{} stages, but a step has {}", s.dag.stages.size(), fmt::join(expected, ", "));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const DagStage& stage = s.dag.stages[i];
    const Section section = i == 0 ? Section::prologue : i + 2 >= expected.size() ? Section::epilogue : Section::layer;
    if (stage.name != expected[i] || stage.section != section)
      return fmt::format("stage {} is '{}' of the {}, but must be '{}' of the {}", i, stage.name, to_string(stage.section),
                         expected[i], to_string(section));
  }
  if (auto found = check_tensor_sizes(s)) return found;
  return check_protocol_names(s);
}

Counterexample check_fits(const Subject& s) {
  const DagResources& use = s.dag.resources;
  const Target& target = s.deployment.target;
  if (use.grid < 1 || use.grid > target.sms)
    return fmt::format("grid: {} blocks, but {} has {} SMs and every block must be resident", use.grid, target.name,
                       target.sms);
  if (use.threads < 32 * (use.consumer_warps + 1) || use.threads > target.max_threads_per_block || use.threads % 32 != 0)
    return fmt::format("threads: {} for {} consumer warps; whole warps, one more than consumers, at most {} on {}",
                       use.threads, use.consumer_warps, target.max_threads_per_block, target.name);
  const int registers = target.registers_per_sm / use.threads;
  if (use.registers_per_thread > registers || use.registers_per_thread < kFewestRegisters)
    return fmt::format("registers: {} a thread; {} threads on {} may have {}, and a consumer needs {}",
                       use.registers_per_thread, use.threads, target.name, registers, kFewestRegisters);
  if (use.smem_bytes > target.smem_per_block)
    return fmt::format("shared memory: {} bytes, but a block on {} may have {}", use.smem_bytes, target.name,
                       target.smem_per_block);
  if (use.ring_stages < 2 || use.window < 1 || use.window > use.ring_stages)
    return fmt::format("ring: {} stages with {} in flight; at least 2 stages, and no more in flight than there are",
                       use.ring_stages, use.window);
  if (use.ring_stage_bytes > use.smem_bytes / use.ring_stages)
    return fmt::format("ring: {} stages of {} bytes do not fit the {} bytes of shared memory asked for", use.ring_stages,
                       use.ring_stage_bytes, use.smem_bytes);
  double device = 2.0 * s.model().layers * 2.0 * s.model().kv_rows() * static_cast<double>(s.deployment.workload.context);
  for (const DagStage& stage : s.dag.stages) {
    for (const TaskRange& range : stage.ranges) {
      if (range.role == WarpRole::loader)
        device += static_cast<double>(range.bytes) * range.count * (stage.section == Section::layer ? s.dag.layers : 1);
    }
  }
  if (target.memory_bytes > 0 && device > static_cast<double>(target.memory_bytes))
    return fmt::format("device memory: {:.0f} bytes of weights and KV, but {} has {}", device, target.name,
                       target.memory_bytes);
  return check_storage(s);
}

Counterexample check_in_bounds(const Subject& s) {
  for (const DagStage& stage : s.dag.stages) {
    std::set<std::tuple<WarpRole, int>> seen;
    for (const TaskRange& range : stage.ranges) {
      if (range.sm < 0 || range.sm >= s.dag.resources.grid)
        return fmt::format("{}: the grid has SMs 0 to {}", describe(stage, range, 0), s.dag.resources.grid - 1);
      for (int i = 0; i < range.count; ++i) {
        if (!seen.insert({range.role, range.first + i}).second)
          return fmt::format("{}: task {} of this role exists already", describe(stage, range, i), range.first + i);
        for (const auto* accesses : {&range.reads, &range.writes}) {
          for (const Access& access : *accesses) {
            const Region region = access.at(i);
            if (region.begin < 0 || region.begin >= region.end || region.end > s.tensor(region.tensor).elements)
              return fmt::format("{} {} {}, but the tensor has elements [0, {})", describe(stage, range, i),
                                 accesses == &range.reads ? "reads" : "writes", describe(s, region),
                                 s.tensor(region.tensor).elements);
          }
        }
      }
    }
  }
  return {};
}

}  // namespace validation

namespace {

bool has_stage(const TileDag& dag, std::string_view name) { return dag.find_stage(name) >= 0; }

}  // namespace

Certificate validate(const TileDag& dag, const Deployment& deployment) {
  using namespace validation;
  Subject subject{dag, deployment};
  subject.fused_attention = !has_stage(dag, "attention");
  const int ffn = dag.find_tensor("ffn");
  subject.fused_silu = ffn >= 0 && subject.tensor(ffn).elements == deployment.model.ffn;

  Certificate certificate;
  certificate.deployment_key = deployment.key();
  certificate.plan_hash = dag.plan_hash;
  certificate.dag_hash = hash_hex(tile_dag_to_json(dag).dump());
  const auto refuted = [&](const char* check, Counterexample found) {
    if (found) {
      certificate.failed = check;
      certificate.counterexample = std::move(*found);
      return true;
    }
    certificate.checks.emplace_back(check);
    return false;
  };
  if (refuted("structure", check_structure(subject)) || refuted("fits", check_fits(subject)) ||
      refuted("in_bounds", check_in_bounds(subject)) || refuted("complete", check_complete(subject)) ||
      refuted("operands", check_operands(subject)) || refuted("edges", check_edges(subject)) ||
      refuted("protocol", check_protocol(subject)))
    return certificate;
  const RunResult run = run_protocol(subject);
  if (refuted("deadlock_free", run.deadlock) || refuted("race_free", run.race)) return certificate;
  certificate.ok = true;
  return certificate;
}

Json certificate_to_json(const Certificate& certificate) {
  Json out;
  out["format"] = "adamk.certificate";
  out["version"] = 2;
  out["ok"] = certificate.ok;
  out["validator_version"] = certificate.validator_version;
  out["deployment_key"] = certificate.deployment_key;
  out["plan_hash"] = certificate.plan_hash;
  out["dag_hash"] = certificate.dag_hash;
  out["checks"] = certificate.checks;
  out["failed"] = certificate.failed;
  out["counterexample"] = certificate.counterexample;
  return out;
}

}  // namespace adamk
