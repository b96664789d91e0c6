#include "adamk/dag/deployment.h"

#include "adamk/base/hash.h"

namespace adamk {
namespace {

constexpr std::string_view format_name = "adamk.deployment";
constexpr int format_version = 1;
constexpr int oldest_sm = 80;     // cp.async and bf16 mma
constexpr int head_dim_step = 8;  // attention reads K and V in 16-byte pieces
constexpr int max_head_dim = 256;
constexpr int row_step = 4;  // an exchanged packet pair carries four values
constexpr int max_steps_per_launch = 4096;

Json workload_to_json(const Workload& workload) {
  return {{"batch", workload.batch},
          {"context", workload.context},
          {"steps_per_launch", workload.steps_per_launch},
          {"sampling", workload.sampling}};
}

Result<Workload> workload_from_json(const JsonView& view) {
  ADAMK_CHECK(view.only_keys({"batch", "context", "steps_per_launch", "sampling"}));
  Workload workload;
  if (const auto batch = view.find("batch")) {
    ADAMK_TRY(const std::int64_t value, batch->integer(1, 1 << 20));
    workload.batch = static_cast<int>(value);
  }
  if (const auto context = view.find("context")) {
    ADAMK_TRY(workload.context, context->integer(1));
  }
  if (const auto steps = view.find("steps_per_launch")) {
    ADAMK_TRY(const std::int64_t value, steps->integer(1, max_steps_per_launch));
    workload.steps_per_launch = static_cast<int>(value);
  }
  if (const auto sampling = view.find("sampling")) {
    ADAMK_TRY(workload.sampling, sampling->text());
  }
  return workload;
}

Result<void> check_workload(const Workload& workload, const Model& model) {
  if (workload.batch != 1) {
    return fail(Errc::unsupported, "batch {} is not supported yet, only 1; larger batches come with the fast kernel",
                workload.batch);
  }
  if (workload.sampling != "greedy") {
    return fail(Errc::unsupported, "sampling '{}' is not supported, only greedy", workload.sampling);
  }
  if (workload.steps_per_launch < 1 || workload.steps_per_launch > max_steps_per_launch) {
    return fail(Errc::bad_input, "steps per launch {} is outside 1 to {}", workload.steps_per_launch,
                max_steps_per_launch);
  }
  if (workload.context < 1) return fail(Errc::bad_input, "context {} is below 1", workload.context);
  if (workload.context > model.max_positions) {
    return fail(Errc::infeasible,
                "context {} is beyond the model's max_position_embeddings of {}; ask for at most that",
                workload.context, model.max_positions);
  }
  if (model.sliding_window && workload.context > *model.sliding_window) {
    return fail(Errc::unsupported,
                "context {} is beyond the model's sliding window of {}, and kernels attend to every earlier position; ask for at most {}",
                workload.context, *model.sliding_window, *model.sliding_window);
  }
  return {};
}

Result<void> check_shapes(const Model& model) {
  if (model.quantization) {
    return fail(Errc::unsupported,
                "GPTQ weights can be imported but no kernel for them exists yet; use a bf16 or fp16 checkpoint");
  }
  if (model.head_dim % head_dim_step != 0 || model.head_dim > max_head_dim) {
    return fail(Errc::unsupported, "head_dim {} is not supported: kernels need a multiple of {} up to {}",
                model.head_dim, head_dim_step, max_head_dim);
  }
  struct Rows {
    std::string_view name;
    int value;
  };
  for (const Rows& rows : {Rows{"hidden size", model.hidden}, Rows{"intermediate size", model.ffn},
                           Rows{"number of query rows (heads x head_dim)", model.q_rows()}}) {
    if (rows.value % row_step != 0) {
      return fail(Errc::unsupported, "the {} {} is not supported: kernels need a multiple of {}", rows.name, rows.value,
                  row_step);
    }
  }
  return {};
}

/// Identity and limits of the target: what can change a kernel. Measured speeds are left out, so that probing a device
/// again does not orphan its records.
Json target_key(const Target& target) {
  Json json = target_to_json(target);
  for (const char* key : {"product", "read_gbps", "hop_us", "clock_mhz", "measured"}) json.erase(key);
  return json;
}

}  // namespace

std::string_view to_string(WeightsFormat format) { return format == WeightsFormat::bf16 ? "bf16" : "fp16"; }

Result<WeightsFormat> parse_weights_format(std::string_view text) {
  if (text == "bf16") return WeightsFormat::bf16;
  if (text == "fp16") return WeightsFormat::fp16;
  return fail(Errc::bad_input, "weights format '{}' is not known, only bf16 and fp16", text);
}

std::string Deployment::key() const {
  const Json json = {{"model", model_to_json(model)},
                     {"weights", to_string(weights)},
                     {"target", target_key(target)},
                     {"workload", workload_to_json(workload)}};
  return hash_hex(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<Deployment> make_deployment(Model model, WeightsFormat weights, Target target, Workload workload) {
  ADAMK_CHECK(check_shapes(model));
  ADAMK_CHECK(check_workload(workload, model));
  if (target.sm < oldest_sm) {
    return fail(Errc::unsupported, "target {} is sm_{}: kernels need sm_{} or newer", target.name, target.sm,
                oldest_sm);
  }
  return Deployment{std::move(model), weights, std::move(target), std::move(workload)};
}

Json deployment_to_json(const Deployment& deployment) {
  return {{"format", format_name},
          {"version", format_version},
          {"model", model_to_json(deployment.model)},
          {"weights", to_string(deployment.weights)},
          {"target", target_to_json(deployment.target)},
          {"workload", workload_to_json(deployment.workload)}};
}

Result<Deployment> deployment_from_json(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, format_name, format_version));
  ADAMK_CHECK(root.only_keys({"format", "version", "model", "weights", "target", "workload"}));
  ADAMK_TRY(const JsonView model_view, root.at("model"));
  ADAMK_TRY(Model model, model_from_description(model_view));
  ADAMK_TRY(const JsonView weights_view, root.at("weights"));
  ADAMK_TRY(const std::string weights_name, weights_view.text());
  ADAMK_TRY(const WeightsFormat weights, parse_weights_format(weights_name).map_error([&](Error error) {
    return weights_view.error(error.code, error.message);
  }));
  ADAMK_TRY(const JsonView target_view, root.at("target"));
  ADAMK_TRY(Target target, target_from_json(target_view));
  ADAMK_TRY(const JsonView workload_view, root.at("workload"));
  ADAMK_TRY(Workload workload, workload_from_json(workload_view));
  return make_deployment(std::move(model), weights, std::move(target), std::move(workload))
      .map_error([&](const Error& error) { return root.error(error.code, error.message); });
}

}  // namespace adamk
