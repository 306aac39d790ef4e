// coppice: speculative decoding with dynamic token trees.
//
// A draft model grows a token tree, the target model judges the whole tree in one pass, and
// the text that comes out is distributed exactly as the target alone would have written it.
//
//   #include <coppice.h>
//   #include <iostream>
//
//   int main() {
//     coppice::EngineOptions options;
//     options.target = "models/stories/target";
//     options.draft = "models/stories/draft";
//     auto engine = coppice::Engine::load(options);
//     coppice::GenerateOptions generate;
//     generate.sampling.temperature = 0.8;
//     auto result = engine.generate("Once upon a time", generate, [](const coppice::Piece& piece) {
//       std::cout << piece.text << std::flush;
//       return true;  // false stops here
//     });
//     std::cerr << result.statistics.accepted_length << " tokens per target pass\n";
//   }
//
// Threads: an Engine may be used from several threads at once. Texts that are written at the same
// time, by calls from several threads or by one call with many requests, share the models' passes;
// one Sequence may be used by one thread at a time. A callback, and EngineOptions::progress, runs
// on the calling thread, outside the engine's lock, and may call other sequences of the same
// engine. Those of Engine::submit() run on a thread of the engine's own.
//
// Errors: everything throws coppice::Error; what() is one line that names what is wrong, where,
// and the remedy; kind() tells a wrong request (usage) from a failure. Running out of context
// or of KV memory is no error: the result's finish_reason says so and its text stands. The
// library neither prints nor aborts. After an exception the engine stays usable.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/api.h"
#include "base/error_type.h"
#include "base/sampling_params.h"
#include "base/token_id.h"
#include "speculation.h"

namespace coppice {

/// The release, e.g. "0.2.0".
COPPICE_API const char* version();

enum class Acceptance {
  rejection,  ///< recursive rejection sampling; at temperature 0 the target's argmax
  coupled,    ///< shared Gumbel noise: the very tokens that plain coupled sampling gives
  /// The faster, chosen before a text begins and named in Used: by a size asked for or a saved cost
  /// table alone, so that a seed repeats its text; else also by the speed of the engine's texts.
  automatic,
};

enum class DeviceKind {
  automatic,  ///< a GPU if there is one
  cpu,
  cuda,
};

/// What the CPU computes in. The environment variable COPPICE_CPU_ISA caps the instructions used:
/// sse4, avx2, avx512, avx512_bf16 or amx; it is read once in a process.
///
/// By all but bf16, the logits behind a text are the same bits however its tokens came about: with
/// any draft or none, beside any texts, on any number of threads. Greedy and coupled texts are then
/// those of plain decoding, without exception.
enum class CpuDtype {
  /// f32, but activations meet quantised weights, other than fp8, in blocks of 32 integers of 8
  /// bits: about twice as fast.
  automatic,
  f32,   ///< weights in the format they are stored in, activations and sums in F32, on every CPU
  bf16,  ///< weights and activations rounded to BF16, which takes AVX-512 BF16 or AMX and may be
         ///< faster for trees of many nodes
};

/// What keys and values are kept in. 16 bits halve the memory of long texts and what a step reads
/// of it; sums stay in F32. Rounded keys and values change the target's logits a little.
enum class KvDtype {
  automatic,  ///< F32 on the CPU, the model's type on a GPU, which takes no other
  f32,
  bf16,
  f16,
};

/// What a model's matrices are rounded to as they are read, if they are stored in 16 or 32 bits, or
/// in FP8. Names are GGUF's but for fp8 (E4M3 with a scale for 64 numbers) and int4 (with a scale
/// and a zero for 32); of q4_k the embedding and output tables are q6_k. A rounded target is
/// another target: texts are distributed as its own. A draft may be anything.
enum class WeightRounding { keep, q8_0, q6_k, q4_k, q4_0, fp8, int4 };

/// Drafts without a model: what followed where the text's last tokens stood before.
enum class Lookup {
  none,
  text,    ///< in the prompt and in the answer so far
  engine,  ///< also in the answers of the engine's earlier texts that looked there, too
  /// As text, where a draft is used and tree sizes follow costs; under rejection and by threshold
  /// only if its passes are not next to free beside the target's; else none.
  automatic,
};

enum class FinishReason {
  length,     ///< max_new_tokens reached
  eos,        ///< one of the model's end tokens
  stop,       ///< a stop text, or one of stop_tokens
  context,    ///< the model's context is full
  memory,     ///< no KV slot was left
  cancelled,  ///< the callback returned false, or all was to stop
  failed,     ///< Outcome::error says by what
};

COPPICE_API const char* name_of(Acceptance acceptance);
COPPICE_API const char* name_of(DeviceKind device);
COPPICE_API const char* name_of(CpuDtype dtype);
COPPICE_API const char* name_of(KvDtype dtype);
COPPICE_API const char* name_of(WeightRounding rounding);
COPPICE_API const char* name_of(Lookup lookup);
COPPICE_API const char* name_of(FinishReason reason);

struct LoadEvent {
  const char* what;  ///< "target", "draft", "costs" (once they are needed); else who is waited for
  double fraction;   ///< 0 to 1; of a wait: of the time that it may take
};

/// What is fixed for an engine's life.
struct EngineOptions {
  std::filesystem::path target;  ///< Hugging Face model folder
  std::filesystem::path draft;   ///< likewise; empty: plain decoding only
  WeightRounding target_weights = WeightRounding::keep;
  /// With the target's own path as the draft: what the target is drafted by, itself in fewer bits.
  WeightRounding draft_weights = WeightRounding::keep;

  // Performance only: none of these changes what the text is distributed as, but for kv_tokens of a
  // LongRoPE model, whose factors go by the positions it is loaded for.
  DeviceKind device = DeviceKind::automatic;
  int threads = 0;  ///< CPU threads; 0: as many as the process may use
  CpuDtype cpu_dtype = CpuDtype::automatic;
  KvDtype kv_dtype = KvDtype::automatic;
  std::int32_t max_tree_size = 256;  ///< largest tree that generate() will be asked for
  /// KV slots of each model, for all sequences together; so also the longest text. Whole pages of
  /// 16. 0: max_sequences texts of 2048 (or of the context, if that is shorter), at least a context
  /// of up to 8192; less if memory is short.
  std::int32_t kv_tokens = 0;
  std::int32_t max_sequences = 64;  ///< texts that are written side by side; further ones wait
  /// Rows that one pass of the target judges, of all texts' trees; 0: 512, fewer if memory is
  /// short. Never fewer than those of a tree of max_tree_size.
  std::int32_t max_batch_rows = 0;
  /// A text begins with what is in memory of its prompt, and what it leaves stays there until
  /// others lack memory. false: a text shares with nobody, and its KV is freed when its generate()
  /// ends.
  bool prefix_cache = true;
  /// Devices that share the target, each with a part of every layer (tensor parallelism): 1, or
  /// more GPUs, connected by NCCL; 0: as many of the visible ones, or of `devices`, as its shape
  /// can be split over. Heads are to be a multiple of it, KV heads a multiple or a divisor. On the
  /// CPU the parts share the processor, which shows what is computed and gains nothing. Logits
  /// differ from one device's by rounding, so texts may at near-ties.
  std::int32_t tensor_parallel = 1;
  /// Likewise of the draft, which as a rule is faster whole, on the first of them.
  std::int32_t draft_tensor_parallel = 1;
  /// CUDA: numbers of the visible GPUs to use, the first for what is not split. Empty: from 0 on.
  /// One GPU listed several times has all parts, which is slower than a whole model: for tests.
  std::vector<std::int32_t> devices;
  /// "HOST:PORT" at which the target's other tensor_parallel - 1 ranks join, each another process
  /// (`coppice rank`), of this host or of others; this process has one device then, and load()
  /// waits for them. Only sums over ranks differ in how they go; texts are the same. Empty: all
  /// ranks are of this process.
  std::string rank_address;
  /// That processes must know to join. Required unless only this machine can reach the address.
  /// Connections are not encrypted: use a network that others cannot listen to.
  std::string rank_key;
  /// Seconds that ranks wait for each other, and that a pass of one may take, before the generation
  /// fails.
  double rank_timeout = 300.0;
  double gpu_memory_fraction = 0.9;  ///< CUDA: part of a card's memory that may be used
  std::uint64_t gpu_memory = 0;      ///< CUDA: if not 0, instead: bytes of it that may be used
  /// Layers of the target that stay on the GPU, spread evenly. The others lie in page-locked host
  /// memory and are copied to the GPU in every pass, ahead of their use; texts are the same, bit
  /// for bit. -1: all, or as many as fit beside the draft and one text's KV. On the CPU layers that
  /// memory does not hold are read from a file in every pass, ahead of their use; a number without
  /// host_memory only shows what streaming does: layers are copied before use, in vain.
  std::int32_t gpu_layers = -1;
  std::int32_t draft_gpu_layers = -1;  ///< likewise of the draft; -1: all
  /// max_tree_size is at least this where layers of the target are copied in every pass: further
  /// rows are nearly free there.
  std::int32_t streamed_tree_size = 0;
  /// Bytes that the other layers may take, on the CPU both models' weights; 0: of what is free.
  std::uint64_t host_memory = 0;
  /// Measured costs, for automatic sizes: read if the file exists, else written; sizes then repeat
  /// themselves. Empty: measured when first needed, or taken from the user's cache folder.
  std::filesystem::path cost_table;
  /// Without cost_table: keep measured costs in coppice's folder under XDG_CACHE_HOME, or
  /// ~/.cache, and begin with them the next time if a few passes agree.
  bool cost_cache = true;
  std::function<void(const LoadEvent&)> progress;
};

class Engine;

/// Which texts an answer may be: a set of texts over bytes, in the tokens of one engine's target.
/// Under it the text is distributed as the target's own where only tokens have a chance that can
/// still end in the set. Built once, by the engine whose texts it rules, then copied freely and
/// shared between requests and threads.
///
/// Throws Error(usage) for what is wrong, not supported or admits no text but the empty one.
class COPPICE_API Constraint {
 public:
  /// Everything may follow.
  Constraint() = default;
  /// Any JSON value.
  static Constraint json(const Engine& engine);
  /// JSON that a schema of draft 2020-12 admits; src/constraints/README.md lists the keywords.
  static Constraint json_schema(const Engine& engine, std::string_view schema);
  /// A text that matches the expression as a whole (ECMA-262's syntax, without back references,
  /// look-behind and word boundaries).
  static Constraint regex(const Engine& engine, std::string_view pattern);
  /// One of these.
  static Constraint choice(const Engine& engine, std::span<const std::string> texts);
  /// What the rule `root` of a grammar in llama.cpp's GBNF syntax spells.
  static Constraint grammar(const Engine& engine, std::string_view gbnf);

  explicit operator bool() const { return impl_ != nullptr; }

  struct Impl;

 private:
  friend struct ConstraintAccess;  // engine/constraint_impl.h, which is not installed
  std::shared_ptr<const Impl> impl_;
};

/// What may differ from one generation to the next.
struct GenerateOptions {
  std::int32_t max_new_tokens = 128;

  // Behaviour.
  SamplingParams sampling;  ///< of target and draft alike; as it is, always the most probable token
  std::uint64_t seed = 0;
  /// Same seed, other stream: an independent text. Under rejection with automatic sizes, give each
  /// text of an engine a seed or a stream of its own: what the same random numbers did to an
  /// earlier text would decide the sizes of a later one, whose law is then not exactly the
  /// target's.
  std::uint64_t stream = 0;
  /// The text ends before the first of these that it holds. A special token, which is not shown, is
  /// looked for as it is spelt: "<|im_end|>" stops at that token.
  std::vector<std::string> stop;
  bool ignore_eos = false;
  /// The text ends before the first of these tokens, as before an end token, but as
  /// FinishReason::stop. Whatever ignore_eos says.
  std::vector<TokenId> stop_tokens;
  /// End tokens and stop_tokens have no chance before the text has as many tokens. A stop text may
  /// end it earlier, and so may a constraint that lets nothing else follow.
  std::int32_t min_new_tokens = 0;
  /// Added to logits of target and draft, before penalties: -100 to 100, each token once. What a
  /// constraint forbids stays forbidden.
  std::vector<std::pair<TokenId, double>> logit_bias;
  /// What the new text may be. It ends by an end token where it is whole; one that runs out of
  /// tokens or context before says so by its finish_reason. Not with ignore_eos.
  Constraint constraint;
  bool add_bos = true;  ///< of a text prompt: BOS, and what tokenizer.json puts around it
  bool logprobs = false;
  std::int32_t top_logprobs = 5;  ///< tokens of TokenLogprob::top: 0 to 20
  Acceptance acceptance = Acceptance::automatic;

  // Performance only.
  Speculation speculation = Dyspec{};
  /// Children of the tree beside the draft's, or alone where no draft was loaded. For Dyspec,
  /// DyspecThreshold and Chain; the other policies refuse `text` and `engine`. `engine` under
  /// rejection: as with automatic sizes, texts are to differ in seed or stream.
  Lookup lookup = Lookup::automatic;
  /// false: as if no draft had been loaded; with `lookup`, trees of looked-up children alone.
  bool use_draft = true;
  /// Rejection: the temperature at which children are drawn; if not given, the target's. Else the
  /// belief temperature, how far the draft is believed (drafting/belief_temperature.h); if not
  /// given, it is learned.
  std::optional<double> draft_temperature;
  bool sampled_children =
      false;  ///< temperature 0: draw children instead of taking the top (as DySpec's paper)

  /// Throws Error(usage) for a value out of range, and for a policy that would bias the text
  /// (ExpandRerank). generate() calls it, and beside it throws Error(usage) for a tree larger than
  /// the engine's max_tree_size, and Error(failure) for a custom policy whose factory or grow()
  /// throws.
  COPPICE_API void validate() const;
};

/// Logarithms (base e) under the target's processed distribution. At temperature 0, where that
/// is a single token, under its distribution at temperature 1 after bias and penalties.
struct TokenLogprob {
  TokenId token = -1;
  double logprob = 0.0;
  /// GenerateOptions::top_logprobs most probable tokens, best first; fewer if others have no
  /// chance.
  std::vector<std::pair<TokenId, double>> top;
};

/// Text that was accepted since the last call; valid UTF-8, never part of a stop text.
struct Piece {
  std::string_view text;
  std::span<const TokenId>
      tokens;  ///< tokens accepted since the last call (their text may follow later)
  std::span<const TokenLogprob> logprobs;  ///< one per token, when asked for
};
/// Returns false to stop the generation.
using PieceCallback = std::function<bool(const Piece&)>;

/// Seconds of wall clock. Of a pass that texts shared, each has the part of its rows; what it
/// waited for the others is in `other`. The parts and Statistics::queue_seconds make up `total`.
struct Seconds {
  /// Seconds of the engine's loading, once and for all, with the costs that the first automatic
  /// size measures.
  double load = 0.0;
  /// Both models' passes over the prompt, the first token included where it comes with them.
  double prefill = 0.0;
  double draft = 0.0;     ///< the draft's forward passes
  double verify = 0.0;    ///< the target's forward passes after prefill
  double sampling = 0.0;  ///< drawing children, processing logits, accepting
  double other = 0.0;
  double total = 0.0;  ///< load included
};

struct Statistics {
  std::int32_t prompt_tokens = 0;  ///< BOS included
  std::int32_t cached_tokens = 0;  ///< of those, whose KV was in memory, of this text or another
  std::int32_t cached_draft_tokens = 0;  ///< likewise, of the draft
  /// Counts, of the tokens returned, those that came with prefill and not from a step: the first
  /// one, where the target had to be run over more of the prompt than its last token, and one after
  /// each preemption.
  std::int32_t prefill_tokens = 0;
  std::int64_t steps = 0;  ///< target passes after prefill
  /// Tokens kept per step: those returned, but for prefill_tokens, and the end token where one
  /// ended the text. What a step's tree held behind an end token does not count, nor do tokens that
  /// a stop text cut off.
  double accepted_length = 0.0;
  double emitted_per_step = 0.0;        ///< the same without the end token
  double tree_size_mean = 0.0;          ///< draft tokens per step
  std::int64_t looked_up = 0;           ///< of all steps' draft tokens, those that were looked up,
  std::int64_t looked_up_accepted = 0;  ///< and of these, the accepted ones
  std::int64_t draft_passes = 0;
  double batch_mean = 0.0;       ///< texts that shared a step, this one included
  double queue_seconds = 0.0;    ///< until there was room for the text, and after preemptions
  std::int32_t preemptions = 0;  ///< times that its KV was given to others, and computed again
  Seconds seconds;
  /// Seconds, of these, that the GPU's host spent on preparing passes of other shapes than it had
  /// met: it records them, and chooses the code of their matrix products. The text's share of its
  /// steps'.
  double preparing_seconds = 0.0;
  double tokens_per_second = 0.0;  ///< tokens / (total - load)
  /// (tokens - prefill_tokens) / decode_seconds()
  double decode_tokens_per_second = 0.0;

  /// Seconds that the text was being written, its waiting and prefill left out.
  double decode_seconds() const {
    return seconds.total - seconds.load - seconds.prefill - queue_seconds;
  }
};

/// Where a model's layers are.
struct LayerPlacement {
  std::int32_t layers = 0;           ///< of the model; 0: there is none
  std::int32_t resident = 0;         ///< that stay on the device
  std::uint64_t streamed_bytes = 0;  ///< of the others, which every pass copies to the device
  /// From where: "host memory" to a GPU; "file": they are read, as memory does not hold them;
  /// "memory": the CPU copies them from there, in vain, as gpu_layers asked. "": there are none.
  std::string streamed_from;
};

/// What a generation was made with.
struct Used {
  std::string policy;  ///< its name; "none" where nothing could draft, too
  /// Requested, or the size of the policy's fixed tree, root not counted; 0: chosen from costs.
  std::int32_t tree_size = 0;
  Lookup lookup = Lookup::none;
  bool constrained = false;  ///< its constraint's forced tokens count as looked up
  std::string planned_for;  ///< sequoia: whose acceptance vector its tree was planned for, in words
  Acceptance acceptance = Acceptance::rejection;
  double temperature = 0.0;
  double presence_penalty = 0.0, frequency_penalty = 0.0;
  std::int32_t min_new_tokens = 0, biased_tokens = 0;  ///< as asked for; of logit_bias
  double draft_temperature = 0.0;                      ///< if it was learned, the last
  std::uint64_t seed = 0;
  std::string device;
  std::string dtype;  ///< of products: "f32", "bf16", or "int8" with quantised weights on the CPU
  std::string kv_dtype;
  std::string target_weights, draft_weights;  ///< formats of quantised ones, "" of others
  LayerPlacement target_layers, draft_layers;
  std::int32_t target_devices = 1, draft_devices = 1;  ///< that each is split over
};

struct Generation {
  std::string text;             ///< new text, without end token and stop text; valid UTF-8
  std::vector<TokenId> tokens;  ///< new tokens; those that reach into a stop text are left out
  FinishReason finish_reason = FinishReason::length;
  Statistics statistics;
  Used used;
  std::vector<TokenLogprob> logprobs;  ///< one per token, when asked for
};

/// One node of a judged tree, for drawing and study.
struct TreeNode {
  TokenId token = -1;
  std::int32_t parent = -1;  ///< index, -1 for the root
  std::int32_t depth = 0;
  std::int32_t rank = 0;     ///< among siblings, in the order drawn
  double draft_prob = 1.0;   ///< D(token | path); 1 of a token that was looked up
  double path_prob = 1.0;    ///< product of draft_prob along the path
  double value = 1.0;        ///< estimated acceptance of its position
  double target_prob = 1.0;  ///< T(token | path), processed
  bool accepted = false;
  bool looked_up = false;  ///< it comes from no distribution (Lookup, or `forced`)
  bool forced = false;     ///< looked up, as the constraint's text goes on so
  // Of a constraint:
  std::int32_t state = -1;    ///< of the text behind the token; equal states admit the same texts.
                              ///< Below 0: none, or the token is not allowed
  std::int32_t allowed = -1;  ///< tokens that it lets follow; below 0: there is no constraint
};

/// One step in full.
struct JudgedTree {
  std::vector<TreeNode> nodes;  ///< node 0 is the root, the prompt's last token
  TokenId bonus = -1;           ///< the token after the last accepted one
  std::int64_t draft_passes = 0;
  Acceptance acceptance = Acceptance::rejection;  ///< the rule that judged it
};

/// What an engine has in its KV memory, in tokens, each of which takes a slot of its model's.
struct CacheStatistics {
  std::int64_t target_slots = 0, draft_slots = 0;  ///< in all
  std::int64_t target_free = 0, draft_free = 0;
  /// In the tree: of prompts, pinned prefixes and texts that have ended. The rest is what texts are
  /// writing.
  std::int64_t target_shared = 0, draft_shared = 0;
  std::int64_t evictable = 0;  ///< of target_shared: nobody uses it now
  std::int64_t nodes = 0;      ///< of the tree
  // Sums since the engine was loaded.
  std::int64_t prompt_tokens = 0;  ///< of texts that have ended, with what follows:
  std::int64_t cached_tokens = 0, cached_draft_tokens = 0;  ///< as in Statistics
  std::int64_t evicted_tokens = 0;  ///< whose KV went for others, and by drop_cache()
  /// Tokens of former passes that the target's passes have read: if each text read its own, and as
  /// they did, reading what texts share once in a pass.
  std::int64_t read_by_text = 0, read_by_tree = 0;
};

class Sequence;
class Prefix;

/// A text to write, or several samples of it.
struct Request {
  std::string prompt;           ///< which needs the target's tokenizer,
  std::vector<TokenId> tokens;  ///< or token ids, to which no BOS is added; one of the two
  /// A seed and stream that others have, too, are the same random numbers: equal prompts then bring
  /// equal texts. generate() gives nobody another stream.
  GenerateOptions options;
  /// Continues this one, as Sequence::generate() does, also without a prompt; nullptr: a new text.
  Sequence* sequence = nullptr;
  std::int32_t n = 1;  ///< samples, of a new text: sample i has the stream options.stream + i
  /// As PieceCallback, on the thread that called generate(), or on submit()'s.
  std::function<bool(std::int32_t sample, const Piece&)> callback;
};

struct Outcome {
  /// What was asked for. Those that failed, or were stopped before they began, are empty.
  std::vector<Generation> samples;
  std::exception_ptr error;  ///< the first failure; nullptr: none
};
/// A request has come to its end; its outcome may be moved from.
using OutcomeCallback = std::function<void(std::size_t index, Outcome& outcome)>;

/// A request that Engine::submit() began. Move-only; any thread may use it. It may outlive the
/// engine, which ends what is under way as FinishReason::cancelled.
class COPPICE_API Submission {
 public:
  /// Nothing: done, and without an outcome.
  Submission() = default;
  Submission(Submission&&) noexcept = default;
  /// As the destructor, of what it was before.
  Submission& operator=(Submission&&) noexcept;
  /// Cancels and waits, so that no callback runs any more; within a callback of a submission it
  /// only cancels.
  ~Submission();

  /// All samples that are under way end after the step at hand, as FinishReason::cancelled, and no
  /// other begins. Does not wait. What has ended stays as it is.
  void cancel();
  /// Whether `finished` has returned.
  bool done() const;
  /// Waits for the end, and returns what became of the request, or what `finished` left of it.
  /// Once. Throws Error(usage) the second time, and within a callback of a submission, whose thread
  /// has to write the text.
  Outcome wait();

  struct Impl;

 private:
  friend class Engine;
  explicit Submission(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// What an engine does, and has done since it was loaded.
struct EngineStatistics {
  std::int32_t running = 0;  ///< texts that take steps
  /// Texts that wait for room: for fewer than EngineOptions::max_sequences others, or for memory.
  std::int32_t waiting = 0;
  std::int64_t passes = 0;      ///< of the target that judged trees, one for all texts of a step
  std::int64_t steps = 0;       ///< trees judged, as Statistics::steps
  std::int64_t new_tokens = 0;  ///< returned by texts that have ended
  std::int64_t drafted = 0, accepted = 0;  ///< nodes of these trees, roots not counted
  std::int64_t preempted = 0;              ///< times that a text's KV went for others
  /// `drafted` and `accepted` by depth: element 0 counts children of roots.
  std::vector<std::int64_t> drafted_by_depth, accepted_by_depth;
  CacheStatistics cache;
};

/// A target, a draft, and their memory. Move-only: what was moved from may be assigned to or
/// destroyed, no more.
class COPPICE_API Engine {
 public:
  static Engine load(const EngineOptions& options);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// Generates from a text, which needs the target's tokenizer, or from token ids (not empty;
  /// no BOS is added).
  Generation generate(std::string_view prompt, const GenerateOptions& options,
                      const PieceCallback& callback = {});
  Generation generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                      const PieceCallback& callback = {});

  /// Writes many texts side by side, each as it would be written alone: distributed alike, and the
  /// same text where its sizes are fixed or its tokens do not depend on them (temperature 0 and
  /// coupled acceptance), up to rounding. Automatic sizes follow what the passes are shared with.
  /// Returns by request. A request that fails spares the others. `finished` hears of each as it
  /// ends, on this thread; what it throws ends all. Once `stop` is asked to stop, from any thread
  /// and in callbacks, too, all texts end where the step at hand leaves them, as
  /// FinishReason::cancelled, and no other begins.
  std::vector<Outcome> generate(std::span<const Request> requests,
                                const OutcomeCallback& finished = {},
                                const std::stop_token& stop = {});

  /// Begins a request and returns at once; texts are written side by side as by generate(). A
  /// thread of the engine's own, which the first call starts, writes them, and calls
  /// Request::callback and `finished`, which is called once, whatever happens. Callbacks must be
  /// quick, as all submissions wait for them; they may submit and cancel, but neither wait for a
  /// submission nor destroy the engine. `finished` may move from the outcome that wait() returns;
  /// what it throws becomes Outcome::error, if there is none. Throws Error(usage) for a request
  /// that cannot be one; what else is wrong is the outcome's error. Request::sequence, if there is
  /// one, may be moved, but not be used until the end.
  Submission submit(Request request, std::function<void(Outcome& outcome)> finished = {});

  /// An empty text that goes on from call to call. It must not outlive the engine.
  Sequence new_sequence();

  /// Computes a text that others will begin with, and keeps it in memory. `tokens` are not empty.
  /// Throws Error, unlike generate(), if it is beyond the context or KV memory has no room.
  Prefix prefix(std::string_view text, bool add_bos = true);
  Prefix prefix(std::span<const TokenId> tokens);
  CacheStatistics cache() const;
  /// Does not wait for a step.
  EngineStatistics statistics() const;
  /// Frees the KV, of both models, that no text under way uses and no Prefix holds. What Sequences
  /// hold between their calls goes, too, and is computed again when they go on.
  void drop_cache();

  /// Grows and judges the first tree after `prompt`, as generate() takes it, and stops there.
  JudgedTree judge_tree(std::string_view prompt, const GenerateOptions& options);
  JudgedTree judge_tree(std::span<const TokenId> prompt, const GenerateOptions& options);

  /// Tokenizes a text that begins a sequence. One that is appended may have other tokens:
  /// generate() of a Sequence takes it as a text.
  std::vector<TokenId> tokenize(std::string_view text, bool add_bos = true) const;
  /// Valid UTF-8: U+FFFD stands for each longest beginning of a character that is not complete.
  /// Throws Error(usage) for a token outside the target's vocabulary.
  std::string detokenize(std::span<const TokenId> tokens) const;
  bool has_tokenizer() const;
  bool has_draft() const;
  std::int32_t context_length() const;
  std::int64_t vocab_size() const;
  double load_seconds() const;
  /// Why the engine is slower here than it could be, in one sentence with the remedy: a build
  /// without machine code for the GPU, say. Empty as a rule.
  std::string warning() const;

  struct Impl;

 private:
  friend class EngineAccess;  // engine/access.h, which is not installed
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A text that grows call by call: each generate() appends the prompt, which may be empty if there
/// are tokens, to what is there, then the tokens it returns (not an end token, not what reached
/// into a stop text). A prompt given as text goes on with what is there: the tokenizer puts no
/// space of its own before it. Between calls its KV stays in memory, where other texts find it,
/// too, until texts lack memory: the least recently used goes first, and is computed again when it
/// is needed. A call that throws leaves it as it was, but that under Acceptance::rejection the next
/// one has other random numbers. Statistics::prompt_tokens counts all tokens before the new ones.
/// Move-only, as Engine. A callback of its own generate() may not call generate() on it, which
/// throws Error(usage), but may move or destroy it: the call goes on to its end.
class COPPICE_API Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  Generation generate(std::string_view prompt, const GenerateOptions& options,
                      const PieceCallback& callback = {});
  Generation generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                      const PieceCallback& callback = {});
  /// All tokens so far, prompts included.
  std::span<const TokenId> tokens() const;
  /// Another sequence with the same tokens, which shares their KV. With equal seed and stream both
  /// go on alike, as twins share their random numbers: give each a stream of its own. Throws
  /// Error(usage) while a generate() of it is under way.
  Sequence fork() const;
  /// Takes all but the first `length` tokens back. What is written next has random numbers of its
  /// own, with the same seed and stream, too. Throws Error(usage) for a
  /// length below 0 or beyond tokens(), and while a generate() of it is under way.
  void rewind(std::int32_t length);

  struct Impl;

 private:
  friend class Engine;
  friend class Prefix;
  friend class SequenceAccess;  // engine/sequence_impl.h, which is not installed
  explicit Sequence(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  ///< shared with a generate() under way only
};

/// A text that stays in memory, computed, while this lives. A text that begins with it and adds
/// nothing computes its last two tokens again, as every prompt's. Move-only. It must not outlive
/// the engine.
class COPPICE_API Prefix {
 public:
  Prefix(Prefix&&) noexcept;
  Prefix& operator=(Prefix&&) noexcept;
  ~Prefix();

  /// A sequence that begins with it.
  Sequence begin() const;
  std::span<const TokenId> tokens() const;

  struct Impl;

 private:
  friend class Engine;
  explicit Prefix(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
