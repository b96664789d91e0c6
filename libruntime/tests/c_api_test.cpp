#include "adamk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "c_api_state.h"
#include "fake_device.h"
#include "sample_artifact.h"

namespace adamk {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using adamk::testing::FakeDevice;
using adamk::testing::sample_contents;
using adamk::testing::SampleInputs;

/// Chooses the token after the one it is fed (modulo 10), as a decoder that echoes would.
void successor_kernel(const AdamkKernelParams& params) {
  int token = 0;
  for (int step = 0; step < params.steps; ++step) {
    token = (step < params.given_count ? params.given[step] : token) + 1;
    params.tokens[step] = token % 10;
    if (params.logits == nullptr) continue;
    for (int i = 0; i < 10; ++i) params.logits[step * 10 + i] = i == token % 10 ? 1.0F : 0.0F;
  }
}

class CApiTest : public adamk::testing::ArtifactFolder {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_artifact(root / "out", sample_contents(inputs)).has_value());
    ASSERT_EQ(adamk_open((root / "out").c_str(), nullptr, &model, error, sizeof error), ADAMK_OK) << error;
  }
  void TearDown() override { adamk_close(model); }
  /// Sessions run on fakes from now on; that of the session made last is `fake`. They are of one context.
  void use_fakes() {
    model->state->open_device = [this](int, void*) -> Result<std::unique_ptr<Device>> {
      auto device = std::make_unique<FakeDevice>();
      device->kernel = successor_kernel;
      ++opened;
      if (fake == nullptr) fake = device.get();  // a session opens its own before the one that keeps the weights
      return device;
    };
  }
  adamk_session* create(const adamk_session_options* options = nullptr) {
    fake = nullptr;
    adamk_session* session = nullptr;
    EXPECT_EQ(adamk_session_create(model, options, &session, error, sizeof error), ADAMK_OK) << error;
    return session;
  }
  SampleInputs inputs;
  adamk_model* model = nullptr;
  FakeDevice* fake = nullptr;
  int opened = 0;
  char error[256] = "";
};

TEST_F(CApiTest, InfoNeedsNoGpu) {
  adamk_model_info info{};
  info.size = sizeof info;
  ASSERT_EQ(adamk_info(model, &info), ADAMK_OK);
  EXPECT_EQ(info.vocab, 10);
  EXPECT_EQ(info.context, 16);
  EXPECT_EQ(info.max_steps, 4);
  EXPECT_EQ(info.kv_bytes, 512);
  EXPECT_STREQ(info.format, "bf16");
  EXPECT_STREQ(info.arch, "sm_90a");
}

TEST_F(CApiTest, InfoLeavesMembersBeyondTheCallersSizeAlone) {
  adamk_model_info info{};
  info.size = offsetof(adamk_model_info, context);
  info.context = -7;
  ASSERT_EQ(adamk_info(model, &info), ADAMK_OK);
  EXPECT_EQ(info.vocab, 10);
  EXPECT_EQ(info.context, -7);
}

TEST_F(CApiTest, OpenFailuresCarryStatusAndText) {
  adamk_model* none = model;
  EXPECT_EQ(adamk_open((root / "nowhere").c_str(), nullptr, &none, error, sizeof error), ADAMK_BAD_INPUT);
  EXPECT_EQ(none, nullptr);
  EXPECT_THAT(error, HasSubstr("manifest.json"));
  EXPECT_EQ(adamk_open(nullptr, nullptr, &none, error, sizeof error), ADAMK_BAD_INPUT);
  EXPECT_STREQ(error, "path: null");
  EXPECT_EQ(adamk_open("x", nullptr, nullptr, error, sizeof error), ADAMK_BAD_INPUT);
  EXPECT_STREQ(error, "model: null");
  const adamk_open_options unset{0, 1};
  EXPECT_EQ(adamk_open("x", &unset, &none, error, sizeof error), ADAMK_BAD_INPUT);
  EXPECT_THAT(error, HasSubstr("adamk_open_options.size: 0"));
}

TEST_F(CApiTest, ErrorTextIsCutToTheBufferAndTerminated) {
  adamk_model* none = nullptr;
  std::memset(error, 'x', sizeof error);
  EXPECT_EQ(adamk_open(nullptr, nullptr, &none, error, 5), ADAMK_BAD_INPUT);
  EXPECT_STREQ(error, "path");
  EXPECT_EQ(error[5], 'x');
  EXPECT_EQ(adamk_open(nullptr, nullptr, &none, nullptr, 0), ADAMK_BAD_INPUT);
}

TEST_F(CApiTest, ASessionWithoutAGpuIsAMachineError) {
  model->state->open_device = [](int, void*) -> Result<std::unique_ptr<Device>> {
    return fail(Errc::machine, "no GPU here");
  };
  adamk_session* session = nullptr;
  EXPECT_EQ(adamk_session_create(model, nullptr, &session, error, sizeof error), ADAMK_MACHINE);
  EXPECT_EQ(session, nullptr);
  EXPECT_STREQ(error, "no GPU here");
  EXPECT_EQ(adamk_session_create(nullptr, nullptr, &session, error, sizeof error), ADAMK_BAD_INPUT);
}

TEST_F(CApiTest, NullHandlesAreRefusedNotFollowed) {
  int token = 0;
  EXPECT_EQ(adamk_step(nullptr, &token, 1, 1), ADAMK_BAD_INPUT);
  EXPECT_EQ(adamk_read_tokens(nullptr, &token, 1), ADAMK_BAD_INPUT);
  EXPECT_EQ(adamk_info(nullptr, nullptr), ADAMK_BAD_INPUT);
  EXPECT_EQ(adamk_position(nullptr), -1);
  EXPECT_STREQ(adamk_session_error(nullptr), "session: null");
  adamk_session_destroy(nullptr);
  adamk_close(nullptr);
}

TEST_F(CApiTest, StepsAcrossLaunchesFeedEachChoiceOn) {
  use_fakes();
  adamk_session* session = create();
  const int prompt[] = {3, 7};
  ASSERT_EQ(adamk_step(session, prompt, 2, 6), ADAMK_OK) << adamk_session_error(session);  // launches of 4 and 2
  EXPECT_EQ(fake->launches.size(), 2u);
  int tokens[6] = {};
  ASSERT_EQ(adamk_read_tokens(session, tokens, 6), ADAMK_OK);
  EXPECT_THAT(tokens, ::testing::ElementsAre(4, 8, 9, 0, 1, 2));
  EXPECT_EQ(adamk_position(session), 6);
  ASSERT_EQ(adamk_step(session, nullptr, 0, 1), ADAMK_OK);
  ASSERT_EQ(adamk_read_tokens(session, tokens, 1), ADAMK_OK);
  EXPECT_EQ(tokens[0], 3);
  EXPECT_EQ(fake->launches.back().position, 6);
  EXPECT_EQ(adamk_reset(session), ADAMK_OK);
  EXPECT_EQ(adamk_position(session), 0);
  EXPECT_EQ(adamk_step(session, nullptr, 0, 1), ADAMK_BAD_INPUT);
  EXPECT_THAT(adamk_session_error(session), HasSubstr("needs a token"));
  adamk_session_destroy(session);
}

TEST_F(CApiTest, PromptsLongerThanALaunchAreSplit) {
  use_fakes();
  adamk_session* session = create();
  const int prompt[] = {1, 3, 5, 7, 1, 3, 5};
  ASSERT_EQ(adamk_step(session, prompt, 7, 7), ADAMK_OK) << adamk_session_error(session);
  int tokens[7] = {};
  ASSERT_EQ(adamk_read_tokens(session, tokens, 7), ADAMK_OK);
  EXPECT_THAT(tokens, ::testing::ElementsAre(2, 4, 6, 8, 2, 4, 6));
  adamk_session_destroy(session);
}

TEST_F(CApiTest, LogitsAreKeptOnRequestOnly) {
  use_fakes();
  float logits[10] = {};
  const int token = 1;
  adamk_session* without = create();
  ASSERT_EQ(adamk_step(without, &token, 1, 1), ADAMK_OK);
  EXPECT_EQ(adamk_read_logits(without, 0, logits, 10), ADAMK_BAD_INPUT);
  EXPECT_THAT(adamk_session_error(without), HasSubstr("keep_logits"));
  adamk_session_destroy(without);
  adamk_session_options options{};
  options.size = sizeof options;
  options.keep_logits = 1;
  adamk_session* session = create(&options);
  ASSERT_EQ(adamk_step(session, &token, 1, 5), ADAMK_OK);
  ASSERT_EQ(adamk_read_logits(session, 4, logits, 10), ADAMK_OK);
  EXPECT_EQ(logits[6], 1.0F) << "1 -> 2 -> 3 -> 4 -> 5 -> 6";
  EXPECT_EQ(logits[5], 0.0F);
  EXPECT_EQ(adamk_read_logits(session, 5, logits, 10), ADAMK_BAD_INPUT);
  EXPECT_EQ(adamk_read_logits(session, 0, logits, 9), ADAMK_BAD_INPUT);
  adamk_session_destroy(session);
}

TEST_F(CApiTest, SessionsShareWeightsAndMayOutliveTheModel) {
  use_fakes();
  adamk_session* first = create();
  EXPECT_EQ(opened, 2) << "one for the session, one that keeps the weights";
  adamk_session* second = create();
  EXPECT_EQ(opened, 3);
  const int token = 1;
  adamk_close(model);
  model = nullptr;
  adamk_session_destroy(first);
  ASSERT_EQ(adamk_step(second, &token, 1, 1), ADAMK_OK) << adamk_session_error(second);
  EXPECT_EQ(std::memcmp(fake->launches.back().weights, inputs.packed.data(), 64), 0);
  adamk_session_destroy(second);
}

TEST_F(CApiTest, KvAndWeightsOfTheCallerAreBound) {
  use_fakes();
  adamk_session_options options{};
  options.size = sizeof options;
  options.kv = reinterpret_cast<std::uintptr_t>(inputs.image.data());
  options.packed = 0x1000;
  adamk_session* session = nullptr;
  EXPECT_EQ(adamk_session_create(model, &options, &session, error, sizeof error), ADAMK_BAD_INPUT);
  EXPECT_THAT(error, HasSubstr("all three"));
  options.small_tensors = 0x2000;
  options.embedding = 0x3000;
  session = create(&options);
  const int token = 1;
  ASSERT_EQ(adamk_step(session, &token, 1, 1), ADAMK_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fake->launches.back().embedding), 0x3000u);
  EXPECT_EQ(fake->launches.back().kv, inputs.image.data());
  adamk_session_destroy(session);
}

TEST_F(CApiTest, StepsBeyondTheContextAreRefusedBeforeAnyLaunch) {
  use_fakes();
  adamk_session* session = create();
  const int token = 1;
  EXPECT_EQ(adamk_step(session, &token, 1, 17), ADAMK_BAD_INPUT);
  EXPECT_THAT(adamk_session_error(session), HasSubstr("do not fit a context of 16"));
  EXPECT_EQ(adamk_set_position(session, 16), ADAMK_BAD_INPUT);
  EXPECT_EQ(adamk_set_position(session, 15), ADAMK_OK);
  EXPECT_EQ(adamk_step(session, &token, 1, 2), ADAMK_BAD_INPUT);
  EXPECT_TRUE(fake->launches.empty());
  EXPECT_EQ(adamk_step(session, &token, 1, 1), ADAMK_OK);
  adamk_session_destroy(session);
}

TEST_F(CApiTest, AWatchdogReportReachesTheCallerAsAMachineError) {
  use_fakes();
  adamk_session* session = create();
  fake->kernel = [](const AdamkKernelParams& params) { params.report[0] = 2; };
  const int token = 1;
  EXPECT_EQ(adamk_step(session, &token, 1, 1), ADAMK_MACHINE);
  EXPECT_THAT(adamk_session_error(session), StartsWith("watchdog:"));
  adamk_session_destroy(session);
}

}  // namespace
}  // namespace adamk
