#include "adamk/runtime/recipe.h"

namespace adamk {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{1} << 40;

Result<std::string> text_at(const JsonView& object, std::string_view key) {
  ADAMK_TRY(const JsonView value, object.at(key));
  return value.text();
}

Result<std::int64_t> integer_at(const JsonView& object, std::string_view key, std::int64_t low, std::int64_t high) {
  ADAMK_TRY(const JsonView value, object.at(key));
  return value.integer(low, high);
}

Result<void> read_int(const JsonView& object, std::string_view key, int low, int high, int& to) {
  ADAMK_TRY(const std::int64_t value, integer_at(object, key, low, high));
  to = static_cast<int>(value);
  return {};
}

Result<void> read_bytes(const JsonView& object, std::string_view key, std::int64_t& to) {
  ADAMK_TRY(to, integer_at(object, key, 0, max_bytes));
  return {};
}

Result<void> read_launch(const JsonView& launch, Recipe& recipe) {
  ADAMK_CHECK(launch.only_keys({"grid", "threads", "smem", "max_steps"}));
  ADAMK_CHECK(read_int(launch, "grid", 1, 65535, recipe.grid));
  ADAMK_CHECK(read_int(launch, "threads", 32, 1024, recipe.threads));
  ADAMK_TRY(recipe.smem, integer_at(launch, "smem", 0, 1 << 20));
  return read_int(launch, "max_steps", 1, 1 << 20, recipe.max_steps);
}

Result<void> read_shapes(const JsonView& shapes, Recipe& recipe) {
  ADAMK_CHECK(shapes.only_keys({"format", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context"}));
  ADAMK_TRY(recipe.format, text_at(shapes, "format"));
  if (recipe.format != "bf16" && recipe.format != "fp16") {
    ADAMK_TRY(const JsonView format, shapes.at("format"));
    return tl::unexpected<Error>(format.error(Errc::bad_input, fmt::format("'{}' is neither bf16 nor fp16", recipe.format)));
  }
  ADAMK_CHECK(read_int(shapes, "layers", 1, 4096, recipe.layers));
  ADAMK_CHECK(read_int(shapes, "hidden", 1, 1 << 20, recipe.hidden));
  ADAMK_CHECK(read_int(shapes, "heads", 1, 4096, recipe.heads));
  ADAMK_CHECK(read_int(shapes, "kv_heads", 1, 4096, recipe.kv_heads));
  ADAMK_CHECK(read_int(shapes, "head_dim", 2, 4096, recipe.head_dim));
  ADAMK_CHECK(read_int(shapes, "ffn", 1, 1 << 22, recipe.ffn));
  ADAMK_CHECK(read_int(shapes, "vocab", 1, 1 << 24, recipe.vocab));
  ADAMK_TRY(recipe.context, integer_at(shapes, "context", 1, 1 << 24));
  return {};
}

Result<void> read_sizes(const JsonView& bytes, Recipe& recipe) {
  ADAMK_CHECK(bytes.only_keys({"packed", "small", "embedding", "kv", "workspace", "per_step"}));
  ADAMK_CHECK(read_bytes(bytes, "packed", recipe.packed_bytes));
  ADAMK_CHECK(read_bytes(bytes, "small", recipe.small_bytes));
  ADAMK_CHECK(read_bytes(bytes, "embedding", recipe.embedding_bytes));
  ADAMK_CHECK(read_bytes(bytes, "kv", recipe.kv_bytes));
  ADAMK_CHECK(read_bytes(bytes, "workspace", recipe.workspace_bytes));
  return read_bytes(bytes, "per_step", recipe.bytes_per_step);
}

Result<void> read_resources(const JsonView& kernel, Recipe& recipe) {
  ADAMK_CHECK(kernel.only_keys({"registers", "spill_bytes", "code_bytes"}));
  ADAMK_CHECK(read_int(kernel, "registers", 0, 1024, recipe.registers));
  ADAMK_CHECK(read_int(kernel, "spill_bytes", 0, 1 << 30, recipe.spill_bytes));
  return read_bytes(kernel, "code_bytes", recipe.code_bytes);
}

Result<void> read_rope(const JsonView& rope, Recipe& recipe) {
  ADAMK_TRY(const std::vector<JsonView> items, rope.items());
  for (const JsonView& item : items) {
    ADAMK_TRY(const double frequency, item.number());
    recipe.rope_inverse_frequencies.push_back(frequency);
  }
  return {};
}

/// Sizes that follow from the shapes are checked, so that a kernel never runs on a buffer shorter than it believes.
Result<void> check_consistent(const JsonView& root, const Recipe& recipe) {
  const auto refuse = [&](std::string_view path, std::string message) -> Result<void> {
    return tl::unexpected<Error>(root.error(Errc::bad_input, fmt::format("{}: {}", path, message)));
  };
  if (recipe.head_dim % 2 != 0) return refuse("shapes.head_dim", fmt::format("{} is odd", recipe.head_dim));
  if (recipe.heads % recipe.kv_heads != 0) {
    return refuse("shapes.kv_heads", fmt::format("{} does not divide heads = {}", recipe.kv_heads, recipe.heads));
  }
  const auto pairs = static_cast<std::size_t>(recipe.head_dim / 2);
  if (recipe.rope_inverse_frequencies.size() != pairs) {
    return refuse("rope_inverse_frequencies",
                  fmt::format("{} values, head_dim / 2 = {}", recipe.rope_inverse_frequencies.size(), pairs));
  }
  // At most 62 bits, by the ranges above.
  const std::int64_t kv = std::int64_t{4} * recipe.layers * recipe.kv_heads * recipe.context * recipe.head_dim;
  if (kv != recipe.kv_bytes) {
    return refuse("bytes.kv", fmt::format("{} is not layers x kv_heads x 2 x context x head_dim x 2", recipe.kv_bytes));
  }
  const std::int64_t embedding = std::int64_t{2} * recipe.vocab * recipe.hidden;
  if (recipe.embedding_bytes != embedding) {
    return refuse("bytes.embedding", fmt::format("{}, vocab x hidden x 2 = {}", recipe.embedding_bytes, embedding));
  }
  return {};
}

}  // namespace

Json recipe_to_json(const Recipe& recipe) {
  return Json{
      {"format", "adamk.recipe"},
      {"version", 1},
      {"deployment", recipe.deployment_key},
      {"plan", recipe.plan_hash},
      {"arch", recipe.arch},
      {"entry", recipe.entry},
      {"weights", recipe.weights_hash},
      {"launch",
       {{"grid", recipe.grid}, {"threads", recipe.threads}, {"smem", recipe.smem}, {"max_steps", recipe.max_steps}}},
      {"shapes",
       {{"format", recipe.format},
        {"layers", recipe.layers},
        {"hidden", recipe.hidden},
        {"heads", recipe.heads},
        {"kv_heads", recipe.kv_heads},
        {"head_dim", recipe.head_dim},
        {"ffn", recipe.ffn},
        {"vocab", recipe.vocab},
        {"context", recipe.context}}},
      {"bytes",
       {{"packed", recipe.packed_bytes},
        {"small", recipe.small_bytes},
        {"embedding", recipe.embedding_bytes},
        {"kv", recipe.kv_bytes},
        {"workspace", recipe.workspace_bytes},
        {"per_step", recipe.bytes_per_step}}},
      {"rope_inverse_frequencies", recipe.rope_inverse_frequencies},
      {"kernel",
       {{"registers", recipe.registers}, {"spill_bytes", recipe.spill_bytes}, {"code_bytes", recipe.code_bytes}}},
  };
}

Result<Recipe> recipe_from_json(const JsonView& root) {
  ADAMK_CHECK(expect_format(root, "adamk.recipe", 1));
  ADAMK_CHECK(root.only_keys({"format", "version", "deployment", "plan", "arch", "entry", "weights", "launch", "shapes",
                              "bytes", "rope_inverse_frequencies", "kernel"}));
  Recipe recipe;
  ADAMK_TRY(recipe.deployment_key, text_at(root, "deployment"));
  ADAMK_TRY(recipe.plan_hash, text_at(root, "plan"));
  ADAMK_TRY(recipe.arch, text_at(root, "arch"));
  ADAMK_TRY(recipe.entry, text_at(root, "entry"));
  ADAMK_TRY(recipe.weights_hash, text_at(root, "weights"));
  ADAMK_TRY(const JsonView launch, root.at("launch"));
  ADAMK_CHECK(read_launch(launch, recipe));
  ADAMK_TRY(const JsonView shapes, root.at("shapes"));
  ADAMK_CHECK(read_shapes(shapes, recipe));
  ADAMK_TRY(const JsonView bytes, root.at("bytes"));
  ADAMK_CHECK(read_sizes(bytes, recipe));
  ADAMK_TRY(const JsonView rope, root.at("rope_inverse_frequencies"));
  ADAMK_CHECK(read_rope(rope, recipe));
  ADAMK_TRY(const JsonView kernel, root.at("kernel"));
  ADAMK_CHECK(read_resources(kernel, recipe));
  ADAMK_CHECK(check_consistent(root, recipe));
  return recipe;
}

}  // namespace adamk
