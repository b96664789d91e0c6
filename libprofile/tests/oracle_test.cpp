#include "adamk/profile/oracle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "adamk/base/half.h"
#include "oracle_dot.h"
#include "small_model.h"
#include "worker_pool.h"

namespace adamk {
namespace {

const int tokens[] = {3, 0, 7, 7, 10, 2};

// Both tables: libprofile/tests/small_model.py.
const std::vector<std::vector<double>> plain_logits = {
    {0.967254175108, -1.24536652443, 0.162040941555, 0.853071796942, 0.390219015379, 2.23481919444, -0.406964851318,
     0.554559376951, -1.52634673648, -0.720567654608, 0.102177786893},
    {1.61629999976, -0.238172702435, -0.196554037626, 0.492621628234, 0.604804491735, 1.00609190791, -1.10029551645,
     0.467656057673, -1.1576269423, -0.27668593237, 0.641679435712},
    {-0.434227599683, -0.0184109103119, -0.353318730773, -0.685480236509, 2.08743947874, -0.734058259318,
     0.454590384081, 0.624472954007, 0.183460503923, 0.371996997662, -0.816993647529},
    {-1.15237222036, -0.130824761661, 0.54679159785, -0.245148299988, 2.09215092435, -1.15253008872, 0.715177620011,
     -0.515485604137, -0.261751890276, 0.121451732455, -1.43830191022},
    {0.277349355413, -0.732535291474, 0.297479389536, 1.12016480041, -1.26104772021, 0.209960222936, -0.783558747058,
     0.0350183537862, 0.348554433951, -1.35743577354, 0.788670364393},
    {0.699107678632, -1.28960873138, -1.08983322157, 0.0530340638343, -0.262929135307, 2.14810138282, 0.403092747715,
     1.88881397343, -0.277543250573, -0.79599536904, 0.169231102367},};

const std::vector<std::vector<double>> full_logits = {
    {0.150917829157, 1.63888172333, -3.63639619904, 1.50652653671, 0.813031265431, -0.541936160319, -0.102298747811,
     -0.42761371618, 1.80623953967, 1.16674740494, -1.88397247299, 1.04333663032, -0.489809747729},
    {-1.13678628891, 1.4325009521, -3.0940703306, 1.58946695792, 1.55718495636, -1.75972817309, 0.223328743978,
     -0.234893115083, 1.5364280361, 0.928746224668, -2.19907378006, 0.603300787098, 0.128774135641},
    {-0.955942982855, 0.353623854038, -2.52358612858, 1.32248725847, 1.61311924655, -0.936501538243, -0.394557037125,
     0.469396243373, 2.39401544871, 0.625873555307, -2.27988193805, -0.0253426261236, 0.0261894850481},
    {-0.839025183665, 0.308477676227, -2.41229451983, 1.26078338026, 1.38909548579, -0.612477694114, -0.438079684795,
     0.648906275031, 2.54484660226, 0.332523380982, -2.29692554965, -0.19344314005, 0.142010014044},
    {0.0723397777112, 2.12910077, -0.68022570647, 0.243636177887, -0.173319363034, -1.08371113533, 0.942649337565,
     0.103668295989, 1.20757767496, -0.1841364751, -1.11943191061, 0.910256467488, -0.215081656756},
    {-0.85108657858, 1.9657184004, -0.391898028499, 0.158261348253, 0.208034356013, -0.531808474981, 0.481569270353,
     0.631588090073, 1.36547315924, -0.96620606428, -0.601742107794, -0.476237831302, 0.729965591841},};

void expect_logits(const Model& model, WeightsFormat format, const std::vector<std::vector<double>>& expected) {
  const auto weights = small::weights_of(model, format);
  ASSERT_TRUE(weights) << weights.error().message;
  for (const int threads : {1, 3}) {
    auto decoder = ReferenceDecoder::create(model, *weights, 8, threads);
    ASSERT_TRUE(decoder) << decoder.error().message;
    for (std::size_t position = 0; position < expected.size(); ++position) {
      const auto logits = decoder->step(tokens[position], static_cast<std::int64_t>(position));
      ASSERT_TRUE(logits) << logits.error().message;
      ASSERT_EQ(logits->size(), expected[position].size());
      for (std::size_t i = 0; i < logits->size(); ++i) EXPECT_NEAR((*logits)[i], expected[position][i], 1e-10);
    }
  }
}

TEST(ReferenceDecoder, AgreesWithTheIndependentProgramOnAPlainTiedModel) {
  expect_logits(small::plain_model(), WeightsFormat::bf16, plain_logits);
  expect_logits(small::plain_model(), WeightsFormat::fp16, plain_logits);
}

TEST(ReferenceDecoder, AgreesWithTheIndependentProgramWithBiasesQkNormAndLlama3Rope) {
  expect_logits(small::full_model(), WeightsFormat::bf16, full_logits);
  expect_logits(small::full_model(), WeightsFormat::fp16, full_logits);
}

TEST(ReferenceDecoder, GoingBackForgetsWhatLayBehind) {
  const Model model = small::plain_model();
  const auto weights = small::weights_of(model, WeightsFormat::bf16);
  auto decoder = ReferenceDecoder::create(model, *weights, 8);
  ASSERT_TRUE(decoder);
  ASSERT_TRUE(decoder->step(3, 0) && decoder->step(5, 1) && decoder->step(6, 2));
  const auto logits = decoder->step(0, 1);
  ASSERT_TRUE(logits);
  EXPECT_EQ(decoder->length(), 2);
  for (std::size_t i = 0; i < logits->size(); ++i) EXPECT_NEAR((*logits)[i], plain_logits[1][i], 1e-10);
  EXPECT_FALSE(decoder->step(0, 3));
  decoder->reset();
  EXPECT_FALSE(decoder->step(0, 1));
}

TEST(ReferenceDecoder, RefusesWhatItCannotAnswer) {
  Model model = small::plain_model();
  const auto weights = small::weights_of(model, WeightsFormat::bf16);
  auto decoder = ReferenceDecoder::create(model, *weights, 2);
  ASSERT_TRUE(decoder);
  EXPECT_FALSE(decoder->step(11, 0));
  EXPECT_FALSE(decoder->step(-1, 0));
  EXPECT_FALSE(decoder->step(0, -1));
  ASSERT_TRUE(decoder->step(0, 0) && decoder->step(0, 1));
  EXPECT_FALSE(decoder->step(0, 2));
  EXPECT_FALSE(decoder->fill_kv(1, 3));
  EXPECT_FALSE(ReferenceDecoder::create(model, *weights, 65));   // max_positions 64
  EXPECT_FALSE(ReferenceDecoder::create(small::full_model(), *weights, 8));
  model.sliding_window = 8;
  EXPECT_TRUE(ReferenceDecoder::create(model, *weights, 8));
  const auto beyond = ReferenceDecoder::create(model, *weights, 9);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("sliding window 8"), std::string::npos);
}

TEST(ReferenceDecoder, KvFillIsTheDevicesFill) {
  const Model model = small::plain_model();
  const auto fill = random_kv(model, WeightsFormat::bf16, 5, 9, 3);
  ASSERT_EQ(fill.size(), 2u * 2 * 2 * 5 * 4);
  // Layer 1, head 0, V, position 2, element 3 of [layers, kv_heads, 2, context, head_dim].
  const std::size_t at = (((1u * 2 + 0) * 2 + 1) * 5 + 2) * 4 + 3;
  EXPECT_EQ(fill[at], float_to_bf16(random_unit(9, (1u * 2 + 0) * 2 + 1, 2 * 4 + 3)));
  EXPECT_EQ(fill[at + 1], 0);   // position 3 is not filled
  const auto longer = random_kv(model, WeightsFormat::bf16, 6, 9, 3);
  EXPECT_EQ(longer[(((1u * 2 + 0) * 2 + 1) * 6 + 2) * 4 + 3], fill[at]);
}

TEST(ReferenceDecoder, FilledPositionsAreAttendedTo) {
  const Model model = small::full_model();
  const auto weights = small::weights_of(model, WeightsFormat::bf16);
  auto decoder = ReferenceDecoder::create(model, *weights, 200);
  ASSERT_TRUE(decoder);
  ASSERT_TRUE(decoder->fill_kv(4, 150));
  EXPECT_EQ(decoder->length(), 150);
  const auto first = decoder->step(3, 150);
  ASSERT_TRUE(first);
  ASSERT_TRUE(decoder->fill_kv(5, 150));
  const auto second = decoder->step(3, 150);
  ASSERT_TRUE(second);
  EXPECT_NE(*first, *second);
  ASSERT_TRUE(decoder->fill_kv(4, 150));
  EXPECT_EQ(*decoder->step(3, 150), *first);
}

TEST(ReferenceDecoder, ThreadsDoNotChangeABit) {
  Model model = small::plain_model();
  model.hidden = 96;
  model.ffn = 640;
  model.vocab = 3000;
  const auto weights = Weights::random(model, WeightsFormat::fp16, 2);
  ASSERT_TRUE(weights);
  auto one = ReferenceDecoder::create(model, *weights, 8, 1), many = ReferenceDecoder::create(model, *weights, 8, 7);
  ASSERT_TRUE(one && many);
  for (int position = 0; position < 3; ++position) EXPECT_EQ(*one->step(position, position), *many->step(position, position));
}

TEST(ReferenceDot, EveryHalfHasItsValueOnEveryPath) {
  for (const auto format : {WeightsFormat::bf16, WeightsFormat::fp16}) {
    for (const DotFunction dot : {dot_function(format), portable_dot_function(format)}) {
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        // One value in a block of zeros, so that the vectorised loop converts it.
        std::vector<Half> row(256);
        std::vector<double> ones(256, 1.0);
        row[bits % 256] = static_cast<Half>(bits);
        const double want = to_float(format, static_cast<Half>(bits)), got = dot(row.data(), ones.data(), 256);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(got)) << bits;
        } else {
          ASSERT_EQ(got, want) << bits;
        }
      }
    }
  }
}

TEST(ReferenceDot, PathsAgreeToTheBitAtAnyLength) {
  std::vector<Half> row(1000);
  std::vector<double> x(1000);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = float_to_bf16(random_unit(1, 1, i));
    x[i] = random_unit(1, 2, i);
  }
  for (const int n : {0, 1, 7, 8, 255, 256, 257, 512, 1000}) {
    EXPECT_EQ(dot_function(WeightsFormat::bf16)(row.data(), x.data(), n),
              portable_dot_function(WeightsFormat::bf16)(row.data(), x.data(), n)) << n;
  }
}

TEST(WorkerPool, EveryIndexIsVisitedOnceHoweverOftenItRuns) {
  WorkerPool pool(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> visits(static_cast<std::size_t>(round));
    pool.for_ranges(round, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) ++visits[static_cast<std::size_t>(i)];
    });
    for (const int count : visits) ASSERT_EQ(count, 1);
  }
}

TEST(ByteText, TextAndTokensAreEachOthersInverse) {
  const std::string text = "Once\n\xc3\xa9";
  EXPECT_EQ(bytes_to_tokens(text), (std::vector<int>{79, 110, 99, 101, 10, 195, 169}));
  EXPECT_EQ(tokens_to_bytes(bytes_to_tokens(text)), text);
  const int beyond[] = {65, 256, -1};
  EXPECT_EQ(tokens_to_bytes(beyond), "A??");
}

}  // namespace
}  // namespace adamk
