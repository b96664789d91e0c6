// Generated kernels on a GPU against the reference decoder: every exchange kind, norm mode, fusion and tile, on small models
// whose shapes divide nothing, then the models the project is judged by at their real size.
#include "gpu_fixture.h"

#include <cctype>

#include "adamk/dag/space.h"

namespace adamk::gpu {
namespace {

Model small_model(const std::string& family, int layers, int hidden, int heads, int kv_heads, int head_dim, int ffn,
                  int vocab) {
  Model model;
  model.family = family;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.ffn = ffn;
  model.vocab = vocab;
  model.max_positions = 4096;
  model.norm_eps = 1e-5;
  model.qk_norm = family == "qwen3";
  model.qkv_bias = family == "qwen2";
  model.tied_head = family != "llama";
  return model;
}

struct Case {
  std::string name;
  Model model;
  WeightsFormat format;
  int plans;   // sampled from its space
};

std::vector<Case> cases() {
  Model biased = small_model("llama", 2, 128, 4, 2, 32, 256, 300);   // every bias there is
  biased.qkv_bias = biased.output_bias = biased.mlp_bias = true;
  Model scaled = small_model("llama", 3, 256, 8, 2, 64, 512, 1000);
  scaled.rope = {RopeKind::llama3, 500000.0, 32.0, 1.0, 4.0, 64};
  return {
      {"gqa", small_model("llama", 4, 128, 8, 4, 16, 384, 256), WeightsFormat::bf16, 12},
      {"ragged", small_model("llama", 5, 64, 8, 4, 8, 172, 509), WeightsFormat::fp16, 8},
      {"qk_norm", small_model("qwen3", 3, 192, 6, 2, 128, 416, 777), WeightsFormat::bf16, 8},
      {"qkv_bias", small_model("qwen2", 3, 160, 10, 2, 16, 304, 515), WeightsFormat::bf16, 8},
      {"mqa", small_model("llama", 2, 128, 8, 1, 32, 256, 333), WeightsFormat::fp16, 6},
      {"mha_wide_head", small_model("llama", 2, 256, 3, 3, 80, 320, 400), WeightsFormat::bf16, 6},
      {"head_24", small_model("qwen3", 2, 96, 4, 2, 24, 160, 300), WeightsFormat::bf16, 4},   // half a head ends inside a lane
      {"head_256", small_model("llama", 2, 256, 2, 1, 256, 320, 400), WeightsFormat::bf16, 4},
      {"all_biases", biased, WeightsFormat::bf16, 6},
      {"llama3_rope", scaled, WeightsFormat::fp16, 6},
  };
}

class KernelTest : public GpuTest, public ::testing::WithParamInterface<Case> {};

VerifyOptions thorough() {
  VerifyOptions options;
  options.positions = {0, 1, 63, 100, 255};
  options.greedy_tokens = 40;   // more than a launch decodes: the hand-over between launches too
  options.origin = WeightsOrigin::random;
  return options;
}

TEST_P(KernelTest, DefaultAndSampledPlansAreCorrect) {
  const Case& c = GetParam();
  const Deployment deployment = deploy(c.model, 256, c.format);
  const auto weights = Weights::random(c.model, c.format, 7);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto space = make_space(deployment);
  ASSERT_TRUE(space) << space.error().message;
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  expect_correct(deployment, *plan, *weights, thorough());
  for (int i = 0; i < c.plans && !HasFailure(); ++i)
    expect_correct(deployment, sample(*space, 11, static_cast<std::uint64_t>(i)), *weights, thorough());
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

INSTANTIATE_TEST_SUITE_P(Models, KernelTest, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& each) { return each.param.name; });

class VariantTest : public GpuTest {
 protected:
  const Model model_ = small_model("qwen3", 3, 256, 8, 4, 32, 512, 600);

  void expect_variant(const std::function<void(Plan&)>& change, const std::string& arch = {}, int sm = 0) {
    Deployment deployment = deploy(model_, 256);
    if (sm != 0) {   // what an older architecture's code does, run here from its PTX
      deployment.target.sm = sm;
      deployment.target.smem_per_block = 99 << 10;
    }
    const auto weights = Weights::random(model_, WeightsFormat::bf16, 3);
    ASSERT_TRUE(weights);
    auto plan = default_plan(deployment);
    ASSERT_TRUE(plan) << plan.error().message;
    change(*plan);
    expect_correct(deployment, *plan, *weights, thorough(), arch);
  }
};

TEST_F(VariantTest, EveryExchangeOnEveryEdge) {
  for (const Exchange kind : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
    for (const StageKind stage :
         {StageKind::qkv, StageKind::attention, StageKind::output, StageKind::gate_up, StageKind::down}) {
      expect_variant([&](Plan& plan) {
        for (StagePlan& each : plan.stages)
          if (each.kind == stage || (stage == StageKind::qkv && each.kind == StageKind::head)) each.input = kind;
      });
    }
    expect_variant([&](Plan& plan) {
      for (StagePlan& each : plan.stages) each.input = kind;
    });
  }
}

TEST_F(VariantTest, EverySplit) {
  for (int splits = 1; splits <= 16; ++splits) {
    expect_variant([&](Plan& plan) {
      for (StagePlan& each : plan.stages)
        if (each.kind == StageKind::attention) each.kv_splits = splits;
    });
  }
}

TEST_F(VariantTest, NormExchangedAttentionRecomputedSiluApart) {
  for (const Exchange kind : {Exchange::tagged, Exchange::counter, Exchange::barrier}) {
    expect_variant([&](Plan& plan) {
      plan.consumer_warps = 8;   // a warp's K slice of 32 columns is one head
      std::erase_if(plan.stages, [](const StagePlan& each) { return each.kind == StageKind::attention; });
      for (StagePlan& each : plan.stages) {
        each.input = kind;
        if (each.kind == StageKind::qkv || each.kind == StageKind::gate_up || each.kind == StageKind::head)
          each.norm = NormMode::exchange;
        if (each.kind == StageKind::output) each.fused_attention = true;
        if (each.kind == StageKind::gate_up) each.fused_silu = false;
      }
    });
  }
}

TEST_F(VariantTest, InnerLoop) {
  expect_variant([](Plan& plan) { plan.unroll = 1; });
  expect_variant([](Plan& plan) {
    for (StagePlan& stage : plan.stages)
      if (stage.kind != StageKind::attention) stage.chunk_steps = 5;
    plan.ring_stages = 3;
    plan.window = 2;
    plan.unroll = 2;      // one step is left over, and chunks touch two rounds of activations
    plan.fragments = 3;
  });
}

TEST_F(VariantTest, WindowPaceAndSmallGrids) {
  expect_variant([](Plan& plan) { plan.window = 1; });
  expect_variant([](Plan& plan) { plan.window = plan.ring_stages; });
  expect_variant([](Plan& plan) { plan.pace = 400; });
  expect_variant([](Plan& plan) { plan.grid = 1; });
  expect_variant([](Plan& plan) { plan.grid = 7; });
}

TEST_F(VariantTest, CodeForOlderArchitectures) {
  expect_variant([](Plan&) {}, "compute_80", 80);
  expect_variant([](Plan&) {}, "compute_86", 86);
  expect_variant([](Plan&) {}, "compute_89", 89);
  expect_variant([](Plan& plan) { plan.pace = 400; }, "compute_89", 89);
  for (const Exchange kind : {Exchange::counter, Exchange::barrier}) {
    expect_variant(
        [&](Plan& plan) {
          for (StagePlan& each : plan.stages) each.input = kind;
        },
        "compute_89", 89);
  }
}

// Far into a long context: default splits, one and sixteen, and attention recomputed by its readers.
TEST_F(VariantTest, LongContext) {
  const Deployment deployment = deploy(model_, 4096);
  const auto weights = Weights::random(model_, WeightsFormat::bf16, 3);
  ASSERT_TRUE(weights);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(plan->stage(StageKind::attention).kv_splits, 1);
  VerifyOptions options = thorough();
  options.positions = {0, 511, 2048, 4095};
  expect_correct(deployment, *plan, *weights, options);
  for (const int splits : {1, 16}) {
    Plan other = *plan;
    for (StagePlan& each : other.stages)
      if (each.kind == StageKind::attention) each.kv_splits = splits;
    expect_correct(deployment, other, *weights, options);
  }
  Plan fused = *plan;
  fused.consumer_warps = 8;
  std::erase_if(fused.stages, [](const StagePlan& each) { return each.kind == StageKind::attention; });
  for (StagePlan& each : fused.stages) each.fused_attention = each.kind == StageKind::output;
  expect_correct(deployment, fused, *weights, options);
}

// Sums are added in a fixed order: equal inputs give equal bits, launch after launch and however tokens are split into launches.
TEST_F(VariantTest, BitsDoNotDependOnTiming) {
  const Deployment deployment = deploy(model_, 256);
  const auto weights = Weights::random(model_, WeightsFormat::bf16, 3);
  ASSERT_TRUE(weights);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  auto decoder = make_decoder(deployment, *plan, *weights);
  ASSERT_TRUE(decoder) << decoder.error().message;
  const std::vector<int> prompt = {17, 4, 255};
  std::vector<float> first;
  const auto tokens = decoder->decode_with_logits(0, prompt, 32, &first);
  ASSERT_TRUE(tokens) << tokens.error().message;
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<float> again;
    const auto repeated = decoder->decode_with_logits(0, prompt, 32, &again);
    ASSERT_TRUE(repeated);
    EXPECT_EQ(*repeated, *tokens);
    EXPECT_EQ(again, first);
  }
  const std::size_t vocab = static_cast<std::size_t>(model_.vocab);
  for (int step = 0; step < 32; ++step) {
    const std::size_t at = static_cast<std::size_t>(step);
    const int given = at < prompt.size() ? prompt[at] : (*tokens)[at - 1];
    std::vector<float> alone;
    const auto one = decoder->decode_with_logits(step, std::span(&given, 1), 1, &alone);
    ASSERT_TRUE(one);
    EXPECT_EQ(one->front(), (*tokens)[at]);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), first.begin() + static_cast<std::ptrdiff_t>(at * vocab)));
  }
}

// A wait that is never satisfied ends in a report, not in a hang. Here the workspace says that a step was already published.
TEST_F(VariantTest, WatchdogReportsInsteadOfHanging) {
  Deployment deployment = deploy(model_, 256);
  const auto weights = Weights::random(model_, WeightsFormat::bf16, 3);
  ASSERT_TRUE(weights);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  auto schedule = make_schedule(deployment, *plan);
  ASSERT_TRUE(schedule);
  auto source = emit_source(deployment, *schedule);
  ASSERT_TRUE(source);
  // The storer publishes under a tag that no reader waits for.
  const std::string right = "static_cast<u64>(tag) << 32 | pair";
  const std::size_t at = source->find(right);
  ASSERT_NE(at, std::string::npos);
  source->replace(at, right.size(), "static_cast<u64>(tag ^ 1u) << 32 | pair");
  const auto kernel = compile(*source, device_arch(device().info()));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const std::vector<std::byte> image = kernel->image(), packed = pack_weights(deployment, *schedule, *weights),
                               small = pack_small_tensors(deployment, *schedule, *weights);
  DecoderInputs inputs{image, packed, small, std::as_bytes(weights->embedding())};
  auto decoder = Decoder::create(device(), make_recipe(deployment, *schedule, *kernel), inputs);
  ASSERT_TRUE(decoder) << decoder.error().message;
  decoder->set_watchdog_ms(50);
  const int token = 1;
  const auto stuck = decoder->decode(0, std::span(&token, 1), 1);
  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, Errc::machine);
  // The device is as good as new for the next decoder.
  expect_correct(deployment, *plan, *weights, thorough());
}

// ---- real folders and real sizes ------------------------------------------------------------------------------------------

void expect_folder_decodes(const Deployment& deployment, const std::filesystem::path& folder, std::vector<int> prompt,
                           int tokens, const std::function<void(const Deployment&, const Plan&, const Weights&,
                                                                const VerifyOptions&)>& check) {
  const auto weights = Weights::load(deployment.model, folder, deployment.weights);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan) << plan.error().message;
  VerifyOptions options;
  options.positions = {0};
  options.prompt = std::move(prompt);
  options.greedy_tokens = tokens;
  check(deployment, *plan, *weights, options);
}

TEST_F(GpuTest, TinyModelWritesWhatTheReferenceWrites) {
  const std::filesystem::path folder = source_folder() / "examples" / "tiny";
  const auto model = load_model(folder);
  ASSERT_TRUE(model) << model.error().message;
  for (const WeightsFormat format : {WeightsFormat::bf16, WeightsFormat::fp16})
    expect_folder_decodes(deploy(*model, 256, format), folder, bytes_to_tokens("\nOnce upon a time"), 200,
                          [](const auto& d, const auto& p, const auto& w, const auto& o) { expect_correct(d, p, w, o); });
}

struct Published {
  std::string name;
  std::int64_t context;
  std::vector<WeightsFormat> formats;
};

void PrintTo(const Published& p, std::ostream* out) { *out << p.name; }

class CorpusOnGpuTest : public GpuTest, public ::testing::WithParamInterface<Published> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CorpusOnGpuTest);

std::filesystem::path checkpoints() {
  const char* chosen = std::getenv("ADAMK_CORPUS");
  return std::filesystem::path(chosen == nullptr ? "" : chosen) / "checkpoints";
}

/// Those of the checkpoints that lie beside the GPU; naming the folder with ADAMK_CORPUS is what asks for them.
std::vector<Published> published() {
  const std::vector<WeightsFormat> both = {WeightsFormat::bf16, WeightsFormat::fp16};
  const std::vector<Published> all = {
      {"stories260K-hf", 256, both},       {"stories260K-hf-bf16", 256, {WeightsFormat::bf16}},
      {"stories260K-hf-f16", 256, {WeightsFormat::fp16}}, {"fixtures/tiny_llama3", 64, both},
      {"fixtures/tiny_qwen3", 64, both},   {"fixtures/tiny_mistral", 8, both}};
  std::vector<Published> found;
  for (const Published& one : all)
    if (std::filesystem::exists(checkpoints() / one.name / "config.json")) found.push_back(one);
  return found;
}

TEST_P(CorpusOnGpuTest, DecodesAsTheReference) {
  const std::filesystem::path folder = checkpoints() / GetParam().name;
  const auto model = load_model(folder);
  ASSERT_TRUE(model) << model.error().message;
  for (const WeightsFormat format : GetParam().formats)
    expect_folder_decodes(deploy(*model, GetParam().context, format), folder, {1},
                          static_cast<int>(GetParam().context),
                          [](const auto& d, const auto& p, const auto& w, const auto& o) { expect_correct(d, p, w, o); });
}

INSTANTIATE_TEST_SUITE_P(Folders, CorpusOnGpuTest, ::testing::ValuesIn(published()),
                         [](const ::testing::TestParamInfo<Published>& each) {
                           std::string name = each.param.name;
                           std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

class RealSizeTest : public GpuTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(RealSizeTest, LogitsAtSeveralPositions) {
  const auto model =
      load_model(source_folder() / "examples" / "models" / (GetParam() + ".yaml"));
  ASSERT_TRUE(model) << model.error().message;
  const Deployment deployment = deploy(*model, 256);
  const auto weights = Weights::random(*model, WeightsFormat::bf16, 1);
  ASSERT_TRUE(weights);
  const auto plan = default_plan(deployment);
  ASSERT_TRUE(plan);
  VerifyOptions options;
  options.positions = {0, 64, 255};
  options.greedy_tokens = 4;
  options.origin = WeightsOrigin::random;
  expect_correct(deployment, *plan, *weights, options);
}

INSTANTIATE_TEST_SUITE_P(Models, RealSizeTest, ::testing::Values("llama-3.2-1b", "qwen3-1.7b"),
                         [](const ::testing::TestParamInfo<std::string>& each) {
                           std::string name = each.param;
                           std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace adamk::gpu
