// coppice_c.h against coppice.h: equal texts, and failures as statuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat.h"
#include "coppice.h"
#include "coppice_c.h"
#include "engine/failing_allocation.h"
#include "reference/test_device.h"

namespace coppice::testing {
namespace {

template <auto free>
struct Free {
  template <typename Handle>
  void operator()(Handle* handle) const {
    free(handle);
  }
};
using EngineHandle = std::unique_ptr<coppice_engine, Free<coppice_engine_free>>;
using OutcomeHandle = std::unique_ptr<coppice_outcome, Free<coppice_outcome_free>>;
using SequenceHandle = std::unique_ptr<coppice_sequence, Free<coppice_sequence_free>>;
using PrefixHandle = std::unique_ptr<coppice_prefix, Free<coppice_prefix_free>>;
using ConstraintHandle = std::unique_ptr<coppice_constraint, Free<coppice_constraint_free>>;
using TreeHandle = std::unique_ptr<coppice_tree, Free<coppice_tree_free>>;

const std::string target = COPPICE_SOURCE_DIR "/models/stories/target";
const std::string draft = COPPICE_SOURCE_DIR "/models/stories/draft";

coppice_engine_options engine_options() {
  static const std::string device = test_device();
  coppice_engine_options options;
  coppice_engine_options_init(&options, sizeof options);
  options.target = target.c_str();
  options.draft = draft.c_str();
  options.device = device.c_str();
  options.threads = 1;
  return options;
}

// Greedy but for `temperature`, of a fixed size and under coupled acceptance: equal in any company.
coppice_generate_options generate_options(double temperature = 0.8) {
  coppice_generate_options options;
  coppice_generate_options_init(&options, sizeof options);
  options.max_new_tokens = 24;
  options.temperature = temperature;
  options.seed = 5;
  options.acceptance = "coupled";
  options.tree_size = 8;
  return options;
}

coppice_request request_of(const char* prompt, const coppice_generate_options& options) {
  coppice_request request;
  coppice_request_init(&request, sizeof request);
  request.prompt = prompt;
  request.options = &options;
  return request;
}

std::vector<TokenId> tokens_of(const coppice_generation& text) {
  return {text.tokens, text.tokens + text.token_count};
}

class CInterface : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const coppice_engine_options options = engine_options();
    coppice_engine* loaded = nullptr;
    ASSERT_EQ(coppice_engine_load(&options, &loaded), COPPICE_OK) << coppice_error_message();
    engine.reset(loaded);
  }
  static void TearDownTestSuite() { engine.reset(); }

  static OutcomeHandle generate(const coppice_request& request) {
    coppice_outcome* outcome = nullptr;
    EXPECT_EQ(coppice_generate(engine.get(), &request, &outcome), COPPICE_OK)
        << coppice_error_message();
    return OutcomeHandle(outcome);
  }
  // The one sample.
  static const coppice_generation& text_of(const OutcomeHandle& outcome) {
    return *coppice_outcome_generation(outcome.get(), 0);
  }
  static void expect_usage(const coppice_request& request, std::string_view message) {
    coppice_outcome* outcome = nullptr;
    EXPECT_EQ(coppice_generate(engine.get(), &request, &outcome), COPPICE_USAGE);
    EXPECT_EQ(outcome, nullptr);
    EXPECT_EQ(std::string_view(coppice_error_message()), message);
  }

  inline static EngineHandle engine;
};

TEST_F(CInterface, AnEngineSaysWhatItIs) {
  EXPECT_STREQ(coppice_version(), version());
  EXPECT_EQ(coppice_engine_has_tokenizer(engine.get()), 1);
  EXPECT_EQ(coppice_engine_has_draft(engine.get()), 1);
  EXPECT_EQ(coppice_engine_context_length(engine.get()), 512);
  EXPECT_GT(coppice_engine_vocab_size(engine.get()), 1000);
  EXPECT_GT(coppice_engine_load_seconds(engine.get()), 0.0);
  EXPECT_STREQ(coppice_engine_warning(engine.get()), "");
}

TEST_F(CInterface, TokensBecomeTheirTextAgain) {
  const std::string text = "Once upon a time \xe2\x80\x94";
  int32_t* tokens = nullptr;
  size_t count = 0;
  ASSERT_EQ(coppice_tokenize(engine.get(), text.data(), text.size(), 0, &tokens, &count),
            COPPICE_OK);
  char* again = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(coppice_detokenize(engine.get(), tokens, count, &again, &bytes), COPPICE_OK);
  EXPECT_EQ(std::string(again), text);
  EXPECT_EQ(bytes, text.size());
  coppice_free(tokens);
  coppice_free(again);
  // As much of a text as is asked for, also where that is nothing.
  size_t less = 0, all = 0;
  for (const auto& [size, out] : {std::pair(size_t{4}, &less), {COPPICE_ZERO_TERMINATED, &all}}) {
    ASSERT_EQ(coppice_tokenize(engine.get(), text.c_str(), size, 1, &tokens, out), COPPICE_OK);
    coppice_free(tokens);
  }
  EXPECT_EQ(coppice_tokenize(engine.get(), text.c_str(), 0, 1, &tokens, &less), COPPICE_USAGE);
  EXPECT_NE(std::string_view(coppice_error_message()).find("empty"), std::string_view::npos);
  EXPECT_LT(less, all);
  EXPECT_EQ(all, count + 1);
}

TEST_F(CInterface, ATextIsThatOfTheCppInterface) {
  coppice_generate_options options = generate_options();
  const char* const stop[] = {"Zanzibar"};
  options.stop = stop;
  options.stop_count = 1;
  options.top_k = 40;
  options.logprobs = 1;
  const auto outcome = generate(request_of("Once upon a time", options));
  const coppice_generation& text = text_of(outcome);

  EngineOptions own;
  own.target = target;
  own.draft = draft;
  own.device = on_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
  own.threads = 1;
  Engine other = Engine::load(own);
  GenerateOptions request;
  request.max_new_tokens = 24;
  request.sampling.temperature = 0.8;
  request.sampling.top_k = 40;
  request.seed = 5;
  request.acceptance = Acceptance::coupled;
  request.speculation = Dyspec{8};
  request.logprobs = true;
  const Generation expected = other.generate("Once upon a time", request);
  EXPECT_EQ(std::string_view(text.text, text.text_bytes), expected.text);
  EXPECT_EQ(std::strlen(text.text), text.text_bytes);
  EXPECT_EQ(tokens_of(text), expected.tokens);
  EXPECT_STREQ(text.finish_reason, name_of(expected.finish_reason));
  EXPECT_EQ(text.statistics->steps, expected.statistics.steps);
  EXPECT_EQ(text.statistics->accepted_length, expected.statistics.accepted_length);
  EXPECT_STREQ(text.used->policy, "dyspec");
  EXPECT_STREQ(text.used->acceptance, "coupled");
  EXPECT_EQ(text.used->tree_size, 8);
  ASSERT_NE(text.logprobs, nullptr);
  for (size_t i = 0; i < text.token_count; ++i) {
    const coppice_token_logprob& one = *text.logprobs[i];
    EXPECT_EQ(one.token, expected.logprobs[i].token);
    EXPECT_DOUBLE_EQ(one.logprob, expected.logprobs[i].logprob);
    ASSERT_EQ(one.top_count, static_cast<int32_t>(expected.logprobs[i].top.size()));
    for (int32_t j = 0; j < one.top_count; ++j) {
      const auto& [token, logprob] = expected.logprobs[i].top[static_cast<size_t>(j)];
      EXPECT_EQ(one.top_tokens[j], token);
      EXPECT_DOUBLE_EQ(one.top_logprobs[j], logprob);
    }
  }
}

struct Heard {
  std::string text;
  std::vector<TokenId> tokens;
  int calls = 0;
  int most = 1 << 30;
};

int hear(void* user, const coppice_piece* piece) {
  auto& heard = *static_cast<Heard*>(user);
  heard.text.append(piece->text, piece->text_bytes);
  heard.tokens.insert(heard.tokens.end(), piece->tokens, piece->tokens + piece->token_count);
  return ++heard.calls >= heard.most;
}

TEST_F(CInterface, PiecesMakeTheText) {
  const coppice_generate_options options = generate_options();
  coppice_request request = request_of("The captain", options);
  Heard heard;
  request.on_piece = hear;
  request.user = &heard;
  const auto outcome = generate(request);
  EXPECT_GT(heard.calls, 2);
  EXPECT_EQ(heard.text, text_of(outcome).text);
  EXPECT_EQ(heard.tokens, tokens_of(text_of(outcome)));
}

TEST_F(CInterface, ACallbackEndsItsText) {
  const coppice_generate_options options = generate_options();
  coppice_request request = request_of("The captain", options);
  Heard heard;
  heard.most = 1;
  request.on_piece = hear;
  request.user = &heard;
  const auto outcome = generate(request);
  EXPECT_EQ(heard.calls, 1);
  EXPECT_STREQ(text_of(outcome).finish_reason, "cancelled");
  EXPECT_EQ(heard.text, text_of(outcome).text);
}

TEST_F(CInterface, ManyRequestsAreWrittenAsAlone) {
  coppice_generate_options options = generate_options();
  const coppice_request first = request_of("The captain", options);
  coppice_generate_options wrong_options = options;
  wrong_options.temperature = -1.0;
  const coppice_request wrong = request_of("The captain", wrong_options);
  coppice_request samples = request_of("A dog", options);
  samples.n = 3;
  const coppice_request* const requests[] = {&first, &wrong, &samples};
  coppice_outcome* outcomes[3] = {};
  std::vector<size_t> ended;
  ASSERT_EQ(coppice_generate_many(
                engine.get(), requests, 3,
                [](void* user, size_t index, const coppice_outcome* outcome) {
                  EXPECT_NE(outcome, nullptr);
                  static_cast<std::vector<size_t>*>(user)->push_back(index);
                },
                &ended, nullptr, outcomes),
            COPPICE_OK);
  const OutcomeHandle one(outcomes[0]), two(outcomes[1]), three(outcomes[2]);
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(coppice_outcome_status(one.get()), COPPICE_OK);
  EXPECT_STREQ(coppice_outcome_message(one.get()), "");
  EXPECT_EQ(tokens_of(text_of(one)), tokens_of(text_of(generate(first))));
  EXPECT_EQ(coppice_outcome_status(two.get()), COPPICE_USAGE);
  EXPECT_TRUE(std::string_view(coppice_outcome_message(two.get())).starts_with("temperature -1"))
      << coppice_outcome_message(two.get());
  ASSERT_EQ(coppice_outcome_count(three.get()), 3u);
  EXPECT_EQ(coppice_outcome_generation(three.get(), 3), nullptr);
  options.stream = 2;
  EXPECT_EQ(tokens_of(*coppice_outcome_generation(three.get(), 2)),
            tokens_of(text_of(generate(request_of("A dog", options)))));
}

TEST_F(CInterface, AStopEndsAllTexts) {
  coppice_generate_options options = generate_options();
  options.max_new_tokens = 400;
  options.ignore_eos = 1;
  coppice_request request = request_of("The captain", options);
  coppice_stop* stop = nullptr;
  ASSERT_EQ(coppice_stop_new(&stop), COPPICE_OK);
  request.user = stop;
  request.on_piece = [](void* user, const coppice_piece*) {
    coppice_stop_request(static_cast<coppice_stop*>(user));
    return 0;
  };
  const coppice_request* const requests[] = {&request, &request};
  coppice_outcome* outcomes[2] = {};
  ASSERT_EQ(coppice_generate_many(engine.get(), requests, 2, nullptr, nullptr, stop, outcomes),
            COPPICE_OK);
  for (coppice_outcome* const outcome : outcomes) {
    const OutcomeHandle one(outcome);
    EXPECT_STREQ(text_of(one).finish_reason, "cancelled");
  }
  coppice_stop_free(stop);
}

TEST_F(CInterface, TokensAreStoppedBiasedAndCounted) {
  coppice_generate_options options = generate_options(0.0);
  const coppice_request request = request_of("The captain", options);
  const auto plain = generate(request);
  const std::vector<TokenId> tokens = tokens_of(text_of(plain));
  // The first token that stops, unless it is too early for it.
  options.stop_tokens = &tokens[4];
  options.stop_token_count = 1;
  const auto stopped = generate(request);
  EXPECT_STREQ(text_of(stopped).finish_reason, "stop");
  EXPECT_LE(text_of(stopped).token_count, 4u);
  options.min_new_tokens = 12;
  EXPECT_GE(text_of(generate(request)).token_count, 12u);
  options = generate_options(0.0);
  const double never = -100.0;
  options.bias_tokens = tokens.data();
  options.biases = &never;
  options.bias_count = 1;
  options.logprobs = 1;
  options.top_logprobs = 3;
  const auto biased = generate(request);
  EXPECT_NE(text_of(biased).tokens[0], tokens[0]);
  EXPECT_EQ(text_of(biased).used->biased_tokens, 1);
  EXPECT_EQ(text_of(biased).logprobs[0]->top_count, 3);
}

TEST_F(CInterface, PenaltiesAndLookupAreObeyed) {
  coppice_generate_options options = generate_options(0.0);
  options.max_new_tokens = 64;
  const coppice_request request = request_of("The captain", options);
  const auto different = [](const std::vector<TokenId>& tokens) {
    return std::set<TokenId>(tokens.begin(), tokens.end()).size();
  };
  const auto plain = tokens_of(text_of(generate(request)));
  for (double coppice_generate_options::*const penalty :
       {&coppice_generate_options::repetition_penalty, &coppice_generate_options::presence_penalty,
        &coppice_generate_options::frequency_penalty}) {
    options = generate_options(0.0);
    options.max_new_tokens = 64;
    options.*penalty = 2.0;
    EXPECT_GT(different(tokens_of(text_of(generate(request)))), different(plain));
  }
  options = generate_options(0.0);
  options.max_new_tokens = 64;
  // An automatic size may be none where costs are measured on a busy machine.
  options.tree_size = 4;
  options.use_draft = 0;
  for (const char* const lookup : {"text", "engine", "none"}) {
    options.lookup = lookup;
    const auto outcome = generate(request);
    EXPECT_EQ(tokens_of(text_of(outcome)), plain);
    EXPECT_STREQ(text_of(outcome).used->lookup, lookup);
    EXPECT_EQ(text_of(outcome).statistics->looked_up > 0, lookup != std::string_view("none"));
  }
}

TEST_F(CInterface, PiecesHaveTheirTokensLogprobs) {
  coppice_generate_options options = generate_options();
  options.logprobs = 1;
  coppice_request request = request_of("The captain", options);
  std::vector<double> heard;
  request.on_piece = [](void* user, const coppice_piece* piece) {
    for (size_t i = 0; i < piece->token_count; ++i) {
      EXPECT_EQ(piece->logprobs[i]->token, piece->tokens[i]);
      static_cast<std::vector<double>*>(user)->push_back(piece->logprobs[i]->logprob);
    }
    return 0;
  };
  request.user = &heard;
  const auto outcome = generate(request);
  ASSERT_EQ(heard.size(), text_of(outcome).token_count);
  for (size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i], text_of(outcome).logprobs[i]->logprob);
  }
}

TEST_F(CInterface, SubmissionsAreWaitedFor) {
  const coppice_generate_options options = generate_options();
  coppice_request request = request_of("The captain", options);
  const auto expected = tokens_of(text_of(generate(request)));
  Heard heard;
  request.on_piece = hear;
  request.user = &heard;
  int ends = 0;
  coppice_submission* submission = nullptr;
  ASSERT_EQ(coppice_submit(
                engine.get(), &request,
                [](void* user, const coppice_outcome* outcome) {
                  EXPECT_EQ(coppice_outcome_status(outcome), COPPICE_OK);
                  ++*static_cast<int*>(user);
                },
                &ends, &submission),
            COPPICE_OK);
  coppice_outcome* outcome = nullptr;
  ASSERT_EQ(coppice_submission_wait(submission, &outcome), COPPICE_OK) << coppice_error_message();
  const OutcomeHandle owner(outcome);
  EXPECT_EQ(tokens_of(text_of(owner)), expected);
  EXPECT_EQ(heard.tokens, expected);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(coppice_submission_done(submission), 1);
  EXPECT_EQ(coppice_submission_wait(submission, &outcome), COPPICE_USAGE);
  coppice_submission_free(submission);
}

TEST_F(CInterface, SubmissionsAreCancelledAndFreed) {
  coppice_generate_options options = generate_options();
  options.max_new_tokens = 400;
  options.ignore_eos = 1;
  const coppice_request request = request_of("The captain", options);
  coppice_submission* submission = nullptr;
  ASSERT_EQ(coppice_submit(engine.get(), &request, nullptr, nullptr, &submission), COPPICE_OK);
  coppice_submission_cancel(submission);
  coppice_outcome* outcome = nullptr;
  ASSERT_EQ(coppice_submission_wait(submission, &outcome), COPPICE_OK);
  const OutcomeHandle owner(outcome);
  EXPECT_STREQ(text_of(owner).finish_reason, "cancelled");
  coppice_submission_free(submission);
  // Freed while it is under way: none of its callbacks runs any more.
  ASSERT_EQ(coppice_submit(engine.get(), &request, nullptr, nullptr, &submission), COPPICE_OK);
  coppice_submission_free(submission);
  coppice_submission_free(nullptr);
}

// Whatever allocation fails once a text is under way: its end is told, once, and it has all samples
// that were asked for, though perhaps empty ones.
TEST_F(CInterface, MemoryThatRunsOutHidesNoEnd) {
  coppice_generate_options options = generate_options();
  options.max_new_tokens = 2;
  options.logprobs = 1;
  struct Memory {
    long left = 0, spared = 0;
    int ends = 0;
    bool fails = true;
  } memory;
  int failed = 0;
  coppice_request request = request_of("The captain", options);
  request.n = 2;
  request.user = &memory;
  request.on_piece = [](void* user, const coppice_piece*) {
    auto& own = *static_cast<Memory*>(user);
    if (std::exchange(own.fails, false)) allocations_left = own.left;
    return 0;
  };
  for (; memory.spared == 0; ++memory.left) {
    memory.fails = true;
    memory.ends = 0;
    coppice_submission* submission = nullptr;
    ASSERT_EQ(coppice_submit(
                  engine.get(), &request,
                  [](void* user, const coppice_outcome* outcome) {
                    auto& own = *static_cast<Memory*>(user);
                    own.spared = std::max(0L, std::exchange(allocations_left, -1));
                    ++own.ends;
                    EXPECT_EQ(coppice_outcome_count(outcome), 2u);
                  },
                  &memory, &submission),
              COPPICE_OK);
    coppice_outcome* outcome = nullptr;
    ASSERT_EQ(coppice_submission_wait(submission, &outcome), COPPICE_OK) << coppice_error_message();
    coppice_submission_free(submission);
    const OutcomeHandle owner(outcome);
    ASSERT_EQ(memory.ends, 1) << "allocation " << memory.left;
    ASSERT_EQ(coppice_outcome_count(outcome), 2u) << "allocation " << memory.left;
    EXPECT_EQ(coppice_outcome_generation(outcome, 2), nullptr);
    bool whole = true;
    for (size_t i = 0; i < 2; ++i) {
      const coppice_generation* const sample = coppice_outcome_generation(outcome, i);
      ASSERT_NE(sample, nullptr);
      whole &= sample->token_count > 0;
      EXPECT_EQ(sample->token_count == 0, sample->finish_reason == std::string_view("failed"));
      EXPECT_EQ(sample->token_count > 0, sample->logprobs != nullptr);
    }
    failed += !whole;
    EXPECT_TRUE(whole || coppice_outcome_status(outcome) == COPPICE_FAILURE) << memory.left;
    ASSERT_FALSE(HasFailure()) << "allocation " << memory.left;
  }
  EXPECT_GT(failed, 10);
}

// What one of many lacks memory for in the end, it lacks alone.
TEST_F(CInterface, MemoryThatRunsOutSparesOtherOutcomes) {
  coppice_generate_options options = generate_options();
  options.max_new_tokens = 1;
  options.logprobs = 1;
  int failed = 0;
  bool spared = false;
  for (long left = 0; !spared; ++left) {
    allocations_left = -1;
    bool fails = true;
    std::pair<long, bool*> memory(left, &fails);
    coppice_request request = request_of("The captain", options);
    request.user = &memory;
    request.on_piece = [](void* user, const coppice_piece*) {
      const auto& own = *static_cast<std::pair<long, bool*>*>(user);
      if (std::exchange(*own.second, false)) allocations_left = own.first;
      return 0;
    };
    const coppice_request* const requests[] = {&request, &request};
    coppice_outcome* outcomes[2] = {};
    ASSERT_EQ(coppice_generate_many(
                  engine.get(), requests, 2,
                  [](void* user, size_t, const coppice_outcome*) {
                    *static_cast<bool*>(user) |= std::exchange(allocations_left, -1) > 0;
                  },
                  &spared, nullptr, outcomes),
              COPPICE_OK)
        << coppice_error_message() << ", allocation " << left;
    int wanting = 0;
    for (coppice_outcome* const outcome : outcomes) {
      const OutcomeHandle owner(outcome);
      ASSERT_EQ(coppice_outcome_count(outcome), 1u);
      const bool whole = text_of(owner).token_count == 1;
      EXPECT_EQ(coppice_outcome_status(outcome), whole ? COPPICE_OK : COPPICE_FAILURE);
      wanting += !whole;
    }
    EXPECT_LE(wanting, 1) << "allocation " << left;
    failed += wanting;
  }
  EXPECT_GT(failed, 3);
}

TEST_F(CInterface, AnEngineCounts) {
  coppice_engine_counts* counts = nullptr;
  ASSERT_EQ(coppice_engine_count(engine.get(), &counts), COPPICE_OK);
  const int64_t before = counts->new_tokens;
  coppice_engine_counts_free(counts);
  const coppice_generate_options options = generate_options();
  const auto outcome = generate(request_of("The captain", options));
  ASSERT_EQ(coppice_engine_count(engine.get(), &counts), COPPICE_OK);
  EXPECT_EQ(counts->new_tokens - before, static_cast<int64_t>(text_of(outcome).token_count));
  ASSERT_GT(counts->depths, 0u);
  int64_t drafted = 0;
  for (size_t i = 0; i < counts->depths; ++i) {
    drafted += counts->drafted_by_depth[i];
    EXPECT_LE(counts->accepted_by_depth[i], counts->drafted_by_depth[i]);
  }
  EXPECT_EQ(drafted, counts->drafted);
  EXPECT_EQ(counts->running, 0);
  coppice_engine_counts_free(counts);
  coppice_engine_counts_free(nullptr);
}

TEST_F(CInterface, AChatIsThatOfTheCppInterface) {
  const char* const messages = R"([{"role": "user", "content": "Hello </s> there"}])";
  coppice_chat* chat = nullptr;
  ASSERT_EQ(coppice_chat_of_model(target.c_str(), nullptr, &chat), COPPICE_OK)
      << coppice_error_message();
  const Chat own = Chat::of(target);
  EXPECT_EQ(coppice_chat_source(chat), own.source());
  EXPECT_EQ(coppice_chat_takes(chat, "tools"), own.takes_tools());
  EXPECT_EQ(coppice_chat_takes(chat, "messages"), 1);
  for (const bool prompt : {true, false}) {
    coppice_chat_options options;
    coppice_chat_options_init(&options, sizeof options);
    EXPECT_EQ(options.add_generation_prompt, 1);
    options.add_generation_prompt = prompt;
    ChatOptions theirs;
    theirs.add_generation_prompt = prompt;
    char* text = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(coppice_chat_text(chat, messages, &options, &text, &bytes), COPPICE_OK);
    EXPECT_EQ(std::string(text, bytes), own.text(messages, theirs));
    coppice_free(text);
    int32_t* tokens = nullptr;
    size_t count = 0;
    ASSERT_EQ(coppice_chat_tokens(chat, engine.get(), messages, &options, &tokens, &count),
              COPPICE_OK);
    EXPECT_GT(count, 4u);
    coppice_free(tokens);
  }
  char* text = nullptr;
  EXPECT_EQ(coppice_chat_text(chat, "[", nullptr, &text, nullptr), COPPICE_USAGE);
  coppice_chat_free(chat);
  EXPECT_NE(coppice_chat_of_source("{%", target.c_str(), &chat), COPPICE_OK);
  coppice_chat_free(nullptr);
}

TEST_F(CInterface, SequencesGoOnForkAndRewind) {
  coppice_sequence* made = nullptr;
  ASSERT_EQ(coppice_sequence_new(engine.get(), &made), COPPICE_OK);
  const SequenceHandle sequence(made);
  const coppice_generate_options options = generate_options(0.0);
  coppice_request request = request_of("The captain", options);
  request.sequence = sequence.get();
  const auto first = generate(request);
  size_t count = 0;
  coppice_sequence_tokens(sequence.get(), &count);
  EXPECT_GE(count, text_of(first).token_count + 3);

  coppice_sequence* twin = nullptr;
  ASSERT_EQ(coppice_sequence_fork(sequence.get(), &twin), COPPICE_OK);
  const SequenceHandle fork(twin);
  request.prompt = nullptr;  // goes on without one
  const auto on = generate(request);
  request.sequence = fork.get();
  EXPECT_EQ(tokens_of(text_of(generate(request))), tokens_of(text_of(on)));

  EXPECT_EQ(coppice_sequence_rewind(fork.get(), -1), COPPICE_USAGE);
  ASSERT_EQ(coppice_sequence_rewind(fork.get(), static_cast<int32_t>(count)), COPPICE_OK);
  EXPECT_EQ(tokens_of(text_of(generate(request))), tokens_of(text_of(on)));
}

TEST_F(CInterface, APrefixIsShared) {
  coppice_prefix* made = nullptr;
  const std::string text = "Once upon a time there was a little house by the sea";
  ASSERT_EQ(coppice_prefix_of_text(engine.get(), text.data(), text.size(), 1, &made), COPPICE_OK);
  const PrefixHandle prefix(made);
  size_t count = 0;
  coppice_prefix_tokens(prefix.get(), &count);
  EXPECT_GT(count, 8u);
  coppice_sequence* begun = nullptr;
  ASSERT_EQ(coppice_prefix_begin(prefix.get(), &begun), COPPICE_OK);
  const SequenceHandle sequence(begun);
  const coppice_generate_options options = generate_options(0.0);
  coppice_request request = request_of(" and an old captain", options);
  request.sequence = sequence.get();
  const auto outcome = generate(request);
  EXPECT_EQ(text_of(outcome).statistics->cached_tokens, static_cast<int32_t>(count));
  coppice_cache_statistics cache;
  ASSERT_EQ(coppice_engine_cache(engine.get(), &cache, sizeof cache), COPPICE_OK);
  EXPECT_GE(cache.target_shared, static_cast<int64_t>(count));
  EXPECT_EQ(coppice_engine_drop_cache(engine.get()), COPPICE_OK);
}

TEST_F(CInterface, AConstraintHoldsAndMayBeFreedAtOnce) {
  coppice_constraint* made = nullptr;
  const char* const texts[] = {"yes", "no"};
  ASSERT_EQ(coppice_constraint_choice(engine.get(), texts, 2, &made), COPPICE_OK);
  coppice_generate_options options = generate_options(1.0);
  options.constraint = made;
  coppice_request request = request_of("Is it?", options);
  request.n = 8;
  const auto outcome = generate(request);
  coppice_constraint_free(made);
  for (size_t i = 0; i < 8; ++i) {
    const std::string text = coppice_outcome_generation(outcome.get(), i)->text;
    EXPECT_TRUE(text == "yes" || text == "no") << text;
  }
  coppice_constraint* wrong = nullptr;
  EXPECT_EQ(coppice_constraint_regex(engine.get(), "(", &wrong), COPPICE_USAGE);
  EXPECT_EQ(coppice_constraint_json_schema(engine.get(), "{", &wrong), COPPICE_USAGE);
  EXPECT_EQ(coppice_constraint_grammar(engine.get(), nullptr, &wrong), COPPICE_USAGE);
  EXPECT_STREQ(coppice_error_message(), "gbnf: it is NULL; give one");
  EXPECT_EQ(wrong, nullptr);
  ASSERT_EQ(coppice_constraint_json(engine.get(), &wrong), COPPICE_OK);
  coppice_constraint_free(wrong);
}

TEST_F(CInterface, ATreeIsColumns) {
  const coppice_generate_options options = generate_options();
  const coppice_request request = request_of("The captain", options);
  coppice_tree* made = nullptr;
  ASSERT_EQ(coppice_judge_tree(engine.get(), &request, &made), COPPICE_OK);
  const TreeHandle tree(made);
  ASSERT_EQ(tree->count, 9u);
  EXPECT_EQ(tree->parent[0], -1);
  for (size_t i = 1; i < tree->count; ++i) {
    const auto parent = static_cast<size_t>(tree->parent[i]);
    EXPECT_LT(parent, i);
    EXPECT_EQ(tree->depth[i], tree->depth[parent] + 1);
    EXPECT_DOUBLE_EQ(tree->path_prob[i], tree->path_prob[parent] * tree->draft_prob[i]);
    EXPECT_TRUE(!tree->accepted[i] || tree->accepted[parent]);
  }
  EXPECT_GE(tree->bonus, 0);
  EXPECT_STREQ(tree->acceptance, "coupled");
}

// A chain, which counts its rounds.
struct Chain {
  int begun = 0, ended = 0, rounds = 0;
};

int32_t grow_chain(void* state, coppice_growing_tree* tree, const int32_t* evaluated, size_t count,
                   int32_t* next) {
  ++static_cast<Chain*>(state)->rounds;
  EXPECT_EQ(count, 1u);
  if (coppice_growing_tree_room(tree) == 0) return 0;
  int32_t child = -1;
  EXPECT_EQ(coppice_growing_tree_draw(tree, evaluated[0], &child), COPPICE_OK);
  if (child < 0) return 0;
  coppice_draft_node facts;
  EXPECT_EQ(coppice_growing_tree_node(tree, child, &facts, sizeof facts), COPPICE_OK);
  EXPECT_EQ(facts.parent, evaluated[0]);
  EXPECT_EQ(coppice_growing_tree_nodes(tree), child + 1);
  next[0] = child;
  return facts.depth < coppice_growing_tree_max_depth(tree);
}

TEST_F(CInterface, APolicyOfOnesOwnGrowsTheTrees) {
  coppice_generate_options options = generate_options();
  const coppice_request request = request_of("The captain", options);
  const auto expected = tokens_of(text_of(generate(request)));
  Chain chain;
  coppice_policy policy;
  coppice_policy_init(&policy, sizeof policy);
  policy.name = "my-chain";
  policy.size = 3;
  policy.user = &chain;
  policy.create = [](void* user) {
    ++static_cast<Chain*>(user)->begun;
    return user;
  };
  policy.destroy = [](void* state) { ++static_cast<Chain*>(state)->ended; };
  policy.grow = grow_chain;
  options = generate_options();
  options.tree_size = 0;
  options.own_policy = &policy;
  {
    const auto outcome = generate(request);
    EXPECT_EQ(tokens_of(text_of(outcome)), expected);  // coupled: of any tree
    EXPECT_STREQ(text_of(outcome).used->policy, "my-chain");
    EXPECT_GT(text_of(outcome).statistics->accepted_length, 1.0);
    EXPECT_LE(text_of(outcome).statistics->tree_size_mean, 3.0);
  }
  EXPECT_EQ(chain.begun, 1);
  EXPECT_EQ(chain.ended, 1);
  EXPECT_GT(chain.rounds, 3);

  policy.begin = [](void*, const coppice_growing_tree*) { return 0; };
  EXPECT_EQ(text_of(generate(request)).statistics->tree_size_mean, 0.0);
  policy.begin = nullptr;
  policy.grow = [](void*, coppice_growing_tree*, const int32_t*, size_t, int32_t*) { return -7; };
  coppice_outcome* outcome = nullptr;
  EXPECT_EQ(coppice_generate(engine.get(), &request, &outcome), COPPICE_FAILURE);
  EXPECT_STREQ(coppice_error_message(),
               "policy my-chain: its grow() returned -7, which ends the generation; ask the policy "
               "why");
  policy.grow = nullptr;
  expect_usage(request, "own_policy: its grow is NULL; give a function");
  options.tree_size = 3;
  expect_usage(
      request,
      "own_policy: policy, or an option of coppice's policies, is given, too; leave it out");
}

TEST_F(CInterface, WrongRequestsSaySo) {
  coppice_generate_options options = generate_options();
  coppice_request request = request_of("x", options);
  options.policy = "oracle";
  expect_usage(request,
               "policy 'oracle' is unknown; use one of dyspec, dyspec-threshold, chain, static, "
               "specinfer, sequoia, expand-rerank, none");
  options.policy = "chain";
  options.beam_width = 3;
  expect_usage(request,
               "beam-width: it belongs to policy expand-rerank, not to chain; leave it out, or "
               "change the policy");
  options = generate_options();
  options.logprobs = 2;
  expect_usage(request, "logprobs 2: use 0 or 1");
  options = generate_options();
  options.stop_count = 1;
  expect_usage(request, "stop: it is NULL; give one");
  request.struct_size = 0;
  expect_usage(request, "request: its struct_size is 0; begin with its ..._init()");
  request.struct_size = sizeof request - 1;
  expect_usage(request, cat("request: its struct_size is ", sizeof request - 1,
                            "; begin with its ..._init()"));
  request.struct_size = SIZE_MAX / 16 * 8;  // never initialised
  expect_usage(request, cat("request: its struct_size is ", SIZE_MAX / 16 * 8,
                            "; begin with its ..._init()"));
}

TEST_F(CInterface, MessagesAreEachThreadsOwn) {
  EXPECT_EQ(coppice_sequence_rewind(nullptr, 0), COPPICE_USAGE);
  std::string other = "?";
  std::thread([&] { other = coppice_error_message(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(coppice_error_message(), "sequence: it is NULL; give one");
}

TEST(CStructs, AnEngineThatCannotBeLoadedSaysWhy) {
  coppice_engine_options options = engine_options();
  options.target = "/nowhere";
  coppice_engine* engine = nullptr;
  EXPECT_EQ(coppice_engine_load(&options, &engine), COPPICE_FAILURE);
  EXPECT_NE(std::string_view(coppice_error_message()).find("/nowhere"), std::string_view::npos);
  options = engine_options();
  options.kv_dtype = "f64";
  EXPECT_EQ(coppice_engine_load(&options, &engine), COPPICE_USAGE);
  EXPECT_STREQ(coppice_error_message(),
               "kv_dtype 'f64' is unknown; use one of auto, f32, bf16, f16");
  EXPECT_EQ(engine, nullptr);
}

// A header of another version: members more, or fewer.
TEST_F(CInterface, StructsGrowAtTheirEnd) {
  struct Newer {
    coppice_generate_options known;
    double unknown;
  } newer;
  coppice_generate_options_init(&newer.known, sizeof newer);
  EXPECT_EQ(newer.known.struct_size, sizeof newer);
  EXPECT_EQ(newer.unknown, 0.0);
  newer.known.max_new_tokens = 4;
  const coppice_request request = request_of("The captain", newer.known);
  EXPECT_EQ(text_of(generate(request)).token_count, 4u);
  newer.unknown = 0.5;
  expect_usage(request, std::string("options: it sets members that libcoppice ") + version() +
                            " does not know; leave them out, or use a newer library");

  // As far as `seed`: what is behind it is neither read nor written.
  coppice_generate_options older;
  std::memset(&older, 0xff, sizeof older);
  const size_t size = offsetof(coppice_generate_options, stream);
  coppice_generate_options_init(&older, size);
  EXPECT_EQ(older.struct_size, size);
  EXPECT_EQ(older.max_new_tokens, -1);
  EXPECT_EQ(text_of(generate(request_of("The captain", older))).token_count, 128u);

  coppice_cache_statistics cache;
  std::memset(&cache, 0xff, sizeof cache);
  ASSERT_EQ(coppice_engine_cache(engine.get(), &cache, sizeof cache.target_slots), COPPICE_OK);
  EXPECT_GT(cache.target_slots, 0);
  EXPECT_EQ(cache.draft_slots, -1);
}

TEST_F(CInterface, NullIsFreed) {
  coppice_engine_free(nullptr);
  coppice_outcome_free(nullptr);
  coppice_sequence_free(nullptr);
  coppice_prefix_free(nullptr);
  coppice_constraint_free(nullptr);
  coppice_tree_free(nullptr);
  coppice_stop_free(nullptr);
  coppice_free(nullptr);
}

}  // namespace
}  // namespace coppice::testing
