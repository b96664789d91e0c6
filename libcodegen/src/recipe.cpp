#include "adamk/codegen/kernel.h"

namespace adamk {

Recipe make_recipe(const Deployment& deployment, const Schedule& schedule, const Kernel& kernel) {
  const Model& model = deployment.model;
  Recipe recipe;
  recipe.deployment_key = deployment.key();
  recipe.plan_hash = schedule.plan.hash();
  recipe.arch = kernel.arch;
  recipe.grid = schedule.plan.grid;
  recipe.threads = schedule.threads;
  recipe.smem = schedule.smem.total();
  recipe.max_steps = deployment.workload.steps_per_launch;
  recipe.format = std::string(to_string(deployment.weights));
  recipe.layers = model.layers;
  recipe.hidden = model.hidden;
  recipe.heads = model.heads;
  recipe.kv_heads = model.kv_heads;
  recipe.head_dim = model.head_dim;
  recipe.ffn = model.ffn;
  recipe.vocab = model.vocab;
  recipe.context = deployment.workload.context;
  recipe.packed_bytes = schedule.packed_bytes;
  recipe.small_bytes = schedule.small.bytes;
  recipe.embedding_bytes = std::int64_t{2} * model.vocab * model.hidden;
  recipe.kv_bytes = schedule.kv_bytes;
  recipe.workspace_bytes = schedule.workspace.bytes;
  // What one token must read: each matrix once, without the packer's padding.
  for (const GemvShape& gemv : schedule.gemvs)
    recipe.bytes_per_step +=
        std::int64_t{2} * gemv.rows * gemv.k * (gemv.kind == StageKind::head ? 1 : model.layers);
  recipe.rope_inverse_frequencies = rope_inverse_frequencies(model);
  recipe.registers = kernel.registers;
  recipe.spill_bytes = kernel.spill_bytes;
  recipe.code_bytes = static_cast<std::int64_t>(kernel.cubin.size());
  return recipe;
}

}  // namespace adamk
