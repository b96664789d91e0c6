// The reference decoder against programs that know nothing of it: the corpus's plain-Python decoder on the trained 260 K
// checkpoint, and torch on the tiny model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>

#include "adamk/base/json.h"
#include "adamk/profile/compare.h"
#include "adamk/profile/oracle.h"

namespace adamk {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints() {
  const char* named = std::getenv("ADAMK_CORPUS");
  return (named ? fs::path(named) : fs::path(ADAMK_SOURCE_DIR) / ".." / "shared" / "corpus") / "checkpoints";
}

ReferenceDecoder decoder_of(const fs::path& folder, WeightsFormat format, std::int64_t context) {
  const auto model = load_model(folder);
  EXPECT_TRUE(model) << model.error().message;
  const auto weights = Weights::load(*model, folder, format);
  EXPECT_TRUE(weights) << weights.error().message;
  auto decoder = ReferenceDecoder::create(*model, *weights, context);
  EXPECT_TRUE(decoder) << decoder.error().message;
  return std::move(*decoder);
}

/// Feeds the inputs of a golden file and compares its five largest logits per position, and, when `sums`, the sums over all.
void expect_steps(ReferenceDecoder& decoder, const Json& golden, double tolerance, bool sums) {
  for (const Json& step : golden.at("steps")) {
    const auto position = step.at("pos").get<std::int64_t>();
    if (position >= decoder.context()) break;
    const auto logits = decoder.step(step.at("in").get<int>(), position);
    ASSERT_TRUE(logits) << logits.error().message;
    for (const Json& entry : step.at("top5")) {
      ASSERT_NEAR((*logits)[entry[0].get<std::size_t>()], entry[1].get<double>(), tolerance) << "position " << position;
    }
    if (!sums) continue;
    ASSERT_EQ(argmax(*logits), step.at("argmax").get<int>());
    ASSERT_NEAR(std::accumulate(logits->begin(), logits->end(), 0.0), step.at("sum").get<double>(), tolerance * 100);
    ASSERT_NEAR(std::inner_product(logits->begin(), logits->end(), logits->begin(), 0.0),
                step.at("sumsq").get<double>(), tolerance * 1000);
  }
}

class Stories : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(checkpoints())) GTEST_SKIP() << "no corpus at " << checkpoints() << " (set ADAMK_CORPUS)";
  }
};

TEST_F(Stories, LogitsAreThoseOfThePythonDecoderOnTheSame16BitWeights) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 to run the corpus's decoder with";
  const fs::path out = fs::path(testing::TempDir()) / "adamk_stories_golden.json";
  const std::pair<const char*, WeightsFormat> folders[] = {{"stories260K-hf-bf16", WeightsFormat::bf16},
                                                           {"stories260K-hf-f16", WeightsFormat::fp16}};
  for (const auto& [folder, format] : folders) {
    for (const char* prompt : {"", "Once upon a time, there was a brave dragon"}) {
      const std::string command = "PYTHONDONTWRITEBYTECODE=1 python3 '" + (checkpoints() / "run_ref.py").string() +
                                  "' hf '" + (checkpoints() / folder).string() + "' -p '" + prompt +
                                  "' -n 32 --golden '" + out.string() + "' >/dev/null";
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
      const auto golden = read_document(out);
      ASSERT_TRUE(golden) << golden.error().message;
      ASSERT_GE(golden->at("steps").size(), 32u);
      auto decoder = decoder_of(checkpoints() / folder, format, 128);
      expect_steps(decoder, *golden, 1e-9, true);
    }
  }
  fs::remove(out);
}

/// fp16 rounding of the weights moves logits of up to 20 by a few hundredths; a wrong convention moves them by units.
TEST_F(Stories, Fp16WeightsStayCloseToTheGoldenLogitsOfTheFp32Ones) {
  for (const char* name : {"empty", "zoo", "bytes", "dragon"}) {
    const auto golden = read_document(checkpoints() / "golden" / (std::string("stories260K-hf.") + name + ".json"));
    ASSERT_TRUE(golden) << golden.error().message;
    auto decoder = decoder_of(checkpoints() / "stories260K-hf", WeightsFormat::fp16, 256);
    expect_steps(decoder, *golden, 0.1, false);
  }
}

// tiny_golden.json: examples/tiny/train.py --golden, in torch.
class TinyModel : public testing::Test {
 protected:
  const fs::path folder = fs::path(ADAMK_SOURCE_DIR) / "examples" / "tiny";
  Json golden = read_document(fs::path(ADAMK_SOURCE_DIR) / "libprofile" / "tests" / "tiny_golden.json").value_or(Json());
};

TEST_F(TinyModel, LogitsAreThoseOfTheTrainingProgram) {
  int compared = 0;
  for (const Json& text : golden) {
    if (!text.contains("steps")) continue;
    auto decoder = decoder_of(folder, WeightsFormat::bf16, 64);
    expect_steps(decoder, text, 1e-9, true);
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST_F(TinyModel, GreedyTextIsThatOfTheTrainingProgram) {
  ASSERT_EQ(golden.size(), 5u);
  for (const Json& entry : golden) {
    auto decoder = decoder_of(folder, WeightsFormat::bf16, 512);
    const auto expected = bytes_to_tokens(entry.at("text").get<std::string>());
    const std::size_t given = entry.at("prompt").get<std::string>().size();
    ASSERT_GT(expected.size(), given);
    std::vector<int> made(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(given));
    while (made.size() < expected.size()) {
      std::vector<double> logits;
      for (auto position = decoder.length(); position < static_cast<std::int64_t>(made.size()); ++position) {
        logits = decoder.step(made[static_cast<std::size_t>(position)], position).value();
      }
      made.push_back(argmax(logits));
    }
    EXPECT_EQ(tokens_to_bytes(made), entry.at("text").get<std::string>());
  }
}

TEST(Fixtures, EverySupportedOneDecodesFiniteLogits) {
  if (!fs::exists(checkpoints())) GTEST_SKIP() << "no corpus at " << checkpoints() << " (set ADAMK_CORPUS)";
  for (const char* name : {"tiny_llama3", "tiny_qwen3", "tiny_mistral"}) {
    auto decoder = decoder_of(checkpoints() / "fixtures" / name, WeightsFormat::bf16, 8);
    for (int position = 0; position < 8; ++position) {
      const auto logits = decoder.step(position * 31 % 256, position);
      ASSERT_TRUE(logits) << logits.error().message;
      ASSERT_EQ(logits->size(), 256u);
      EXPECT_TRUE(std::all_of(logits->begin(), logits->end(), [](double v) { return std::isfinite(v); })) << name;
    }
  }
}

TEST(Fixtures, ASlidingWindowIsRefusedBeyondItselfByName) {
  const fs::path folder = checkpoints() / "fixtures" / "tiny_mistral";
  if (!fs::exists(folder)) GTEST_SKIP() << "no corpus at " << checkpoints() << " (set ADAMK_CORPUS)";
  const auto model = load_model(folder);
  ASSERT_TRUE(model) << model.error().message;
  const auto weights = Weights::load(*model, folder, WeightsFormat::bf16);
  ASSERT_TRUE(weights);
  const auto decoder = ReferenceDecoder::create(*model, *weights, 9);
  ASSERT_FALSE(decoder);
  EXPECT_NE(decoder.error().message.find("sliding window 8"), std::string::npos);
}

}  // namespace
}  // namespace adamk
