/* coppice in C, for programs and for bindings of other languages: what coppice.h offers, without
 * exceptions and without C++ types. Compiles as C99, C11 and C++.
 *
 *   coppice_engine_options options;
 *   coppice_engine_options_init(&options, sizeof options);
 *   options.target = "models/stories/target";
 *   options.draft = "models/stories/draft";
 *   coppice_engine* engine;
 *   if (coppice_engine_load(&options, &engine) != COPPICE_OK) {
 *     fprintf(stderr, "%s\n", coppice_error_message());
 *     return 1;
 *   }
 *
 * Errors: a function that can fail returns a coppice_status and sets its results, the last
 * parameters, only if that is COPPICE_OK. coppice_error_message() is then one line: what is wrong,
 * where, and the remedy. No exception leaves the library. Running out of context or of KV memory is
 * no error: the finish_reason says so.
 *
 * Memory: handles are opaque; each has a ..._free(), which takes NULL, too. What a handle points to
 * (texts, tokens, results) lives as long as the handle. An engine must outlive its sequences,
 * prefixes, constraints and submissions. Arrays that a function hands over are freed by
 * coppice_free().
 *
 * Structs begin with struct_size, which ..._init() fills with the caller's size, together with all
 * defaults; later versions add members at the end. A library that is older than the caller's header
 * refuses a member that it does not know, if that is not zero. Structs that the library returns
 * grow at the end, too: do not copy them by sizeof.
 *
 * Strings are UTF-8 and end with a zero byte. Flags are 0 or 1. Names of devices, types and
 * policies are those of the command line: "cuda", "bf16", "chain". NULL is the default.
 *
 * Threads: as in coppice.h. An engine may be used from several threads at once, a sequence by one
 * at a time. Callbacks run on the calling thread, those of coppice_submit() on the engine's own.
 */
#ifndef COPPICE_C_H
#define COPPICE_C_H

#include <stddef.h>
#include <stdint.h>

#define COPPICE_C_API __attribute__((visibility("default")))

/* As the number of bytes of a text: up to its zero byte. */
#define COPPICE_ZERO_TERMINATED ((size_t)-1)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum coppice_status {
  COPPICE_OK = 0,
  COPPICE_FAILURE = 1, /* the request was right and could not be carried out */
  COPPICE_USAGE = 2,   /* the request was wrong: an option, a prompt, a combination */
} coppice_status;

/* The library's release, e.g. "0.2.0". */
COPPICE_C_API const char* coppice_version(void);
/* What the last function of this thread that did not return COPPICE_OK has to say: one line, good
 * until the next one fails. "" before. */
COPPICE_C_API const char* coppice_error_message(void);
/* Frees an array that a function handed over. */
COPPICE_C_API void coppice_free(void* array);

/* ---------------------------------------------------------------------------------- engines */

typedef struct coppice_engine coppice_engine;

/* EngineOptions of coppice.h, where each is explained. */
typedef struct coppice_engine_options {
  size_t struct_size;
  const char* target;         /* folder or GGUF file */
  const char* draft;          /* likewise; NULL: plain decoding only */
  const char* target_weights; /* "keep", "q8_0", "q6_k", "q4_k", "q4_0", "fp8", "int4" */
  const char* draft_weights;
  const char* device;    /* "auto", "cpu", "cuda" */
  const char* cpu_dtype; /* "auto", "f32", "bf16" */
  const char* kv_dtype;  /* "auto", "f32", "bf16", "f16" */
  const char* cost_table;
  int32_t threads;
  int32_t max_tree_size;
  int32_t kv_tokens;
  int32_t max_sequences;
  int32_t max_batch_rows;
  int32_t prefix_cache; /* flag */
  int32_t gpu_layers;
  int32_t draft_gpu_layers;
  int32_t streamed_tree_size;
  int32_t cost_cache;         /* flag */
  double gpu_memory_fraction; /* of the card */
  uint64_t gpu_memory;        /* bytes */
  uint64_t host_memory;       /* bytes */
  /* Hears what is loaded ("target", "draft", "costs") or waited for, and how far it is, 0 to 1. */
  void (*progress)(void* user, const char* what, double fraction);
  void* progress_user;
  int32_t tensor_parallel; /* 0: automatic */
  int32_t draft_tensor_parallel;
  const char* devices;      /* numbers of GPUs, "0,1"; NULL: from 0 on */
  const char* rank_address; /* "HOST:PORT"; NULL: all ranks are of this process */
  const char* rank_key;
  double rank_timeout; /* seconds */
} coppice_engine_options;

COPPICE_C_API void coppice_engine_options_init(coppice_engine_options* options, size_t size);
COPPICE_C_API coppice_status coppice_engine_load(const coppice_engine_options* options,
                                                 coppice_engine** engine);
COPPICE_C_API void coppice_engine_free(coppice_engine* engine);

COPPICE_C_API int coppice_engine_has_tokenizer(const coppice_engine* engine);
COPPICE_C_API int coppice_engine_has_draft(const coppice_engine* engine);
COPPICE_C_API int32_t coppice_engine_context_length(const coppice_engine* engine);
COPPICE_C_API int64_t coppice_engine_vocab_size(const coppice_engine* engine);
COPPICE_C_API double coppice_engine_load_seconds(const coppice_engine* engine);
/* Why the engine is slower here than it could be, with the remedy. "" as a rule. */
COPPICE_C_API const char* coppice_engine_warning(const coppice_engine* engine);

/* The tokens of a text of `bytes` bytes that begins a sequence. Free them by coppice_free(). */
COPPICE_C_API coppice_status coppice_tokenize(const coppice_engine* engine, const char* text,
                                              size_t bytes, int add_bos, int32_t** tokens,
                                              size_t* count);
/* Valid UTF-8, and a zero byte that `bytes` does not count. Free it by coppice_free(). */
COPPICE_C_API coppice_status coppice_detokenize(const coppice_engine* engine, const int32_t* tokens,
                                                size_t count, char** text, size_t* bytes);

/* CacheStatistics of coppice.h, in tokens. */
typedef struct coppice_cache_statistics {
  int64_t target_slots, draft_slots;
  int64_t target_free, draft_free;
  int64_t target_shared, draft_shared;
  int64_t evictable;
  int64_t nodes;
  int64_t prompt_tokens;
  int64_t cached_tokens, cached_draft_tokens;
  int64_t evicted_tokens;
  int64_t read_by_text, read_by_tree;
} coppice_cache_statistics;

/* Fills the first `size` bytes; `size` is sizeof *statistics. */
COPPICE_C_API coppice_status coppice_engine_cache(const coppice_engine* engine,
                                                  coppice_cache_statistics* statistics,
                                                  size_t size);
/* Frees the KV that no text under way uses and no prefix holds. */
COPPICE_C_API coppice_status coppice_engine_drop_cache(coppice_engine* engine);

/* ------------------------------------------------------------------------------ constraints */

/* Which texts an answer may be (Constraint of coppice.h). Belongs to the engine's target; may be
 * shared between requests and threads, and freed while they are under way. */
typedef struct coppice_constraint coppice_constraint;

COPPICE_C_API coppice_status coppice_constraint_json(const coppice_engine* engine,
                                                     coppice_constraint** constraint);
COPPICE_C_API coppice_status coppice_constraint_json_schema(const coppice_engine* engine,
                                                            const char* schema,
                                                            coppice_constraint** constraint);
COPPICE_C_API coppice_status coppice_constraint_regex(const coppice_engine* engine,
                                                      const char* pattern,
                                                      coppice_constraint** constraint);
COPPICE_C_API coppice_status coppice_constraint_choice(const coppice_engine* engine,
                                                       const char* const* texts, size_t count,
                                                       coppice_constraint** constraint);
COPPICE_C_API coppice_status coppice_constraint_grammar(const coppice_engine* engine,
                                                        const char* gbnf,
                                                        coppice_constraint** constraint);
COPPICE_C_API void coppice_constraint_free(coppice_constraint* constraint);

/* --------------------------------------------------------------------------------- policies */

/* The tree of one step while a policy of one's own grows it (GrowingTree of custom_policy.h, which
 * has the rules). */
typedef struct coppice_growing_tree coppice_growing_tree;

typedef struct coppice_draft_node {
  int32_t token;
  int32_t parent; /* -1 for the root */
  int32_t depth;
  int32_t rank;
  double draft_prob;
  double path_prob;
} coppice_draft_node;

COPPICE_C_API int32_t coppice_growing_tree_max_size(const coppice_growing_tree* tree);
COPPICE_C_API int32_t coppice_growing_tree_max_depth(const coppice_growing_tree* tree);
COPPICE_C_API int32_t coppice_growing_tree_room(const coppice_growing_tree* tree);
COPPICE_C_API int coppice_growing_tree_any_is_exact(const coppice_growing_tree* tree);
COPPICE_C_API int32_t coppice_growing_tree_nodes(const coppice_growing_tree* tree);
/* Fills the first `size` bytes; `size` is sizeof *facts. */
COPPICE_C_API coppice_status coppice_growing_tree_node(const coppice_growing_tree* tree,
                                                       int32_t node, coppice_draft_node* facts,
                                                       size_t size);
/* Draws the next child of an evaluated node; -1: the draft has no further token. */
COPPICE_C_API coppice_status coppice_growing_tree_draw(coppice_growing_tree* tree, int32_t node,
                                                       int32_t* child);
COPPICE_C_API coppice_status coppice_growing_tree_keep(coppice_growing_tree* tree,
                                                       const int32_t* nodes, size_t count);

/* A policy of one's own (CustomPolicy of custom_policy.h). Its functions are called while the
 * engine is locked, and must not use the engine. */
typedef struct coppice_policy {
  size_t struct_size;
  const char* name; /* in statistics and messages; NULL: "custom" */
  int32_t size;     /* most draft tokens of a step; 0: 64, or max_tree_size if that is less */
  int32_t depth;    /* deepest depth of a node; 0: no limit */
  void* user;
  /* Begins a generation, several of which may be under way: returns what the other functions are
   * called with. NULL: that is `user`. */
  void* (*create)(void* user);
  void (*destroy)(void* state); /* ends it; NULL: nothing */
  /* Begins a step; 0: without a tree. NULL: with one. */
  int (*begin)(void* state, const coppice_growing_tree* tree);
  /* One round: the draft's last pass has evaluated `count` nodes. Writes which nodes the next pass
   * is to evaluate to `next`, which has room for coppice_growing_tree_max_size() of them, and
   * returns their number; 0: the tree is finished; below 0: the generation fails. */
  int32_t (*grow)(void* state, coppice_growing_tree* tree, const int32_t* evaluated, size_t count,
                  int32_t* next);
} coppice_policy;

COPPICE_C_API void coppice_policy_init(coppice_policy* policy, size_t size);

/* --------------------------------------------------------------------------------- requests */

/* GenerateOptions of coppice.h, where each is explained. */
typedef struct coppice_generate_options {
  size_t struct_size;
  uint64_t seed;
  uint64_t stream;
  double temperature;
  double top_p;
  double min_p;
  double repetition_penalty;
  double presence_penalty;
  double frequency_penalty;
  int32_t top_k;
  int32_t max_new_tokens;
  int32_t min_new_tokens;
  int32_t top_logprobs; /* 0 to 20, with logprobs */
  int32_t ignore_eos;   /* flag */
  int32_t add_bos;      /* flag */
  int32_t logprobs;     /* flag */
  int32_t use_draft;    /* flag */
  const char* const* stop;
  size_t stop_count;
  const int32_t* stop_tokens;
  size_t stop_token_count;
  const int32_t* bias_tokens; /* logit_bias: tokens, and what is added to the logit of each */
  const double* biases;
  size_t bias_count;
  const coppice_constraint* constraint; /* NULL: any text */
  const char* acceptance;               /* "auto", "rejection", "coupled" */
  const char* lookup;                   /* "auto", "none", "text", "engine" */
  const double* draft_temperature;      /* NULL: as coppice.h says */

  /* How the draft's trees grow (speculation.h): "dyspec", "dyspec-threshold", "chain",
   * "static", "specinfer", "sequoia", "expand-rerank", "none". What follows is refused where
   * the policy does not take it. */
  const char* policy;
  const char* tree; /* static, sequoia: the file with the tree */
  double threshold;
  int32_t tree_size; /* draft tokens of a step; 0: automatic, or the policy's usual one */
  int32_t tree_depth;
  int32_t beam_width;
  int32_t plain_values;     /* flag */
  int32_t sampled_children; /* flag, of any policy */
  int32_t reserved;         /* 0 */
  const int32_t* widths;    /* specinfer: children of each node, by layer */
  size_t width_count;
  const double* acceptance_vector; /* sequoia: acceptance by sibling rank */
  size_t acceptance_vector_count;
  const coppice_policy* own_policy; /* instead of all these; NULL: none */
} coppice_generate_options;

COPPICE_C_API void coppice_generate_options_init(coppice_generate_options* options, size_t size);

/* A token's logarithm (base e) under the target's processed distribution, and the most probable
 * ones, best first. */
typedef struct coppice_token_logprob {
  int32_t token;
  int32_t top_count;
  double logprob;
  const int32_t* top_tokens;
  const double* top_logprobs;
} coppice_token_logprob;

/* Text that was accepted since the last call (Piece of coppice.h); good during the call. */
typedef struct coppice_piece {
  int32_t sample; /* from 0, of a request with several */
  int32_t reserved;
  const char* text; /* ends with a zero byte, which text_bytes does not count */
  size_t text_bytes;
  const int32_t* tokens; /* their text may follow later */
  size_t token_count;
  const coppice_token_logprob* const* logprobs; /* one for each token, or NULL */
} coppice_piece;
/* Returns 0 to go on, anything else to end the text. */
typedef int (*coppice_piece_callback)(void* user, const coppice_piece* piece);

/* A text that goes on from call to call (Sequence of coppice.h). */
typedef struct coppice_sequence coppice_sequence;

/* A text to write, or several samples of it: from a prompt, or from tokens, to which no BOS is
 * added. */
typedef struct coppice_request {
  size_t struct_size;
  const char* prompt;
  size_t prompt_bytes; /* COPPICE_ZERO_TERMINATED by ..._init() */
  const int32_t* tokens;
  size_t token_count;
  const coppice_generate_options* options; /* NULL: defaults */
  coppice_sequence* sequence;              /* goes on with this one; NULL: a new text */
  coppice_piece_callback on_piece;         /* NULL: nobody listens */
  void* user;                              /* what on_piece is called with */
  int32_t n;                               /* samples, of a new text; 1 */
  int32_t reserved;                        /* 0 */
} coppice_request;

COPPICE_C_API void coppice_request_init(coppice_request* request, size_t size);

/* ---------------------------------------------------------------------------------- results */

/* Statistics of coppice.h. Times in seconds. */
typedef struct coppice_statistics {
  int32_t prompt_tokens, cached_tokens, cached_draft_tokens, prefill_tokens;
  int64_t steps, draft_passes, looked_up, looked_up_accepted;
  double accepted_length, emitted_per_step, tree_size_mean, batch_mean;
  double queue_seconds;
  int32_t preemptions;
  int32_t reserved;
  double load_seconds, prefill_seconds, draft_seconds, verify_seconds, sampling_seconds,
      other_seconds, total_seconds, preparing_seconds;
  double tokens_per_second, decode_tokens_per_second;
} coppice_statistics;

/* Used of coppice.h: what a text was made with. */
typedef struct coppice_used {
  const char* policy;
  const char* lookup;
  const char* planned_for;
  const char* acceptance;
  const char* device;
  const char* dtype;
  const char* kv_dtype;
  const char* target_weights;
  const char* draft_weights;
  double temperature, draft_temperature;
  double presence_penalty, frequency_penalty;
  int32_t min_new_tokens, biased_tokens;
  uint64_t seed;
  int32_t tree_size;   /* 0: chosen from costs */
  int32_t constrained; /* flag: its constraint's forced tokens count as looked up */
  int32_t target_layers, target_layers_resident;
  int32_t draft_layers, draft_layers_resident;
  uint64_t target_streamed_bytes, draft_streamed_bytes;
  const char* target_streamed_from; /* "host memory", "file", "memory", or "" */
  const char* draft_streamed_from;
  int32_t target_devices, draft_devices; /* that each is split over */
} coppice_used;

/* One text (Generation of coppice.h). */
typedef struct coppice_generation {
  const char* text; /* ends with a zero byte, which text_bytes does not count */
  size_t text_bytes;
  const int32_t* tokens;
  size_t token_count;
  /* "length", "eos", "stop", "context", "memory", "cancelled", "failed" */
  const char* finish_reason;
  const coppice_statistics* statistics;
  const coppice_used* used;
  const coppice_token_logprob* const* logprobs; /* one for each token, or NULL */
} coppice_generation;

/* What a request came to. */
typedef struct coppice_outcome coppice_outcome;

/* The first failure of its samples, COPPICE_OK if there was none, and its line. */
COPPICE_C_API coppice_status coppice_outcome_status(const coppice_outcome* outcome);
COPPICE_C_API const char* coppice_outcome_message(const coppice_outcome* outcome);
/* Samples asked for. Those that failed, or were stopped before they began, are empty. */
COPPICE_C_API size_t coppice_outcome_count(const coppice_outcome* outcome);
/* Sample `index`, which lives as long as the outcome; NULL beyond the count. */
COPPICE_C_API const coppice_generation* coppice_outcome_generation(const coppice_outcome* outcome,
                                                                   size_t index);
COPPICE_C_API void coppice_outcome_free(coppice_outcome* outcome);

/* Writes one request. A failure of it is the function's. */
COPPICE_C_API coppice_status coppice_generate(coppice_engine* engine,
                                              const coppice_request* request,
                                              coppice_outcome** outcome);

/* Asks texts to end: from any thread, in callbacks, too, any number of calls. */
typedef struct coppice_stop coppice_stop;
COPPICE_C_API coppice_status coppice_stop_new(coppice_stop** stop);
COPPICE_C_API void coppice_stop_request(coppice_stop* stop);
COPPICE_C_API void coppice_stop_free(coppice_stop* stop);

/* A request has come to its end; the outcome lives during the call. */
typedef void (*coppice_outcome_callback)(void* user, size_t index, const coppice_outcome* outcome);

/* Writes many requests side by side, each as it would be written alone. A request that fails spares
 * the others; its outcome says so. One that cannot be read (a name that is unknown, a NULL) fails
 * the call before anything is written. `outcomes` has room for `count` handles, in the requests'
 * order, each of which is the caller's to free. on_outcome and stop may be NULL. */
COPPICE_C_API coppice_status coppice_generate_many(coppice_engine* engine,
                                                   const coppice_request* const* requests,
                                                   size_t count,
                                                   coppice_outcome_callback on_outcome, void* user,
                                                   coppice_stop* stop, coppice_outcome** outcomes);

/* A request that the engine's own thread writes (Submission of coppice.h), with its callbacks,
 * which must be quick and must not wait for a submission. */
typedef struct coppice_submission coppice_submission;

/* Begins a request and returns at once. on_end, which may be NULL, is called once, when it has
 * ended; the outcome lives during the call. What is wrong with the request may be the outcome's
 * failure. */
COPPICE_C_API coppice_status coppice_submit(coppice_engine* engine, const coppice_request* request,
                                            void (*on_end)(void* user,
                                                           const coppice_outcome* outcome),
                                            void* user, coppice_submission** submission);
/* Asks it to end after the step at hand, from any thread. */
COPPICE_C_API void coppice_submission_cancel(coppice_submission* submission);
COPPICE_C_API int coppice_submission_done(const coppice_submission* submission);
/* Waits for the end and hands the outcome over, once. */
COPPICE_C_API coppice_status coppice_submission_wait(coppice_submission* submission,
                                                     coppice_outcome** outcome);
/* Cancels and waits, so that no callback runs any more; within one it only cancels. */
COPPICE_C_API void coppice_submission_free(coppice_submission* submission);

/* EngineStatistics of coppice.h, but for the cache. */
typedef struct coppice_engine_counts {
  int64_t running, waiting, passes, steps, new_tokens, drafted, accepted, preempted;
  /* Nodes of trees by depth; [0] counts children of roots. */
  const int64_t* drafted_by_depth;
  const int64_t* accepted_by_depth;
  size_t depths;
} coppice_engine_counts;

/* Does not wait for a step. */
COPPICE_C_API coppice_status coppice_engine_count(const coppice_engine* engine,
                                                  coppice_engine_counts** counts);
COPPICE_C_API void coppice_engine_counts_free(coppice_engine_counts* counts);

/* ------------------------------------------------------------------------------------- chat */

/* A model's chat template (chat.h). */
typedef struct coppice_chat coppice_chat;

/* ChatOptions of chat.h. */
typedef struct coppice_chat_options {
  size_t struct_size;
  const char* tools;              /* a JSON list; NULL: none */
  const char* values;             /* a JSON object of names for the template; NULL: none */
  int32_t add_generation_prompt;  /* flag */
  int32_t continue_final_message; /* flag */
} coppice_chat_options;

COPPICE_C_API void coppice_chat_options_init(coppice_chat_options* options, size_t size);
/* The template of a model's folder or GGUF file; of those with names the one of this name, or NULL.
 * Fails if there is none. */
COPPICE_C_API coppice_status coppice_chat_of_model(const char* model, const char* template_name,
                                                   coppice_chat** chat);
/* A template of one's own, with the special tokens of a model. */
COPPICE_C_API coppice_status coppice_chat_of_source(const char* jinja, const char* model,
                                                    coppice_chat** chat);
/* A conversation, a JSON list as in OpenAI's API, in tokens for a request. What messages say never
 * becomes a special token. `options` may be NULL. Free the tokens by coppice_free(). */
COPPICE_C_API coppice_status coppice_chat_tokens(const coppice_chat* chat,
                                                 const coppice_engine* engine, const char* messages,
                                                 const coppice_chat_options* options,
                                                 int32_t** tokens, size_t* count);
/* The same as text, with a zero byte that `bytes` does not count. Free it by coppice_free(). */
COPPICE_C_API coppice_status coppice_chat_text(const coppice_chat* chat, const char* messages,
                                               const coppice_chat_options* options, char** text,
                                               size_t* bytes);
/* Whether the template reads such a name: "tools", say. */
COPPICE_C_API int coppice_chat_takes(const coppice_chat* chat, const char* name);
COPPICE_C_API const char* coppice_chat_source(const coppice_chat* chat);
COPPICE_C_API void coppice_chat_free(coppice_chat* chat);

/* ------------------------------------------------------------------- sequences and prefixes */

COPPICE_C_API coppice_status coppice_sequence_new(coppice_engine* engine,
                                                  coppice_sequence** sequence);
/* All tokens so far, prompts included; good until the sequence changes. */
COPPICE_C_API const int32_t* coppice_sequence_tokens(const coppice_sequence* sequence,
                                                     size_t* count);
/* Another sequence with the same tokens, which shares their KV. Give it a stream of its own. */
COPPICE_C_API coppice_status coppice_sequence_fork(const coppice_sequence* sequence,
                                                   coppice_sequence** fork);
/* Takes all but the first `length` tokens back. */
COPPICE_C_API coppice_status coppice_sequence_rewind(coppice_sequence* sequence, int32_t length);
COPPICE_C_API void coppice_sequence_free(coppice_sequence* sequence);

/* A text that stays in memory, computed, while this lives (Prefix of coppice.h). */
typedef struct coppice_prefix coppice_prefix;

COPPICE_C_API coppice_status coppice_prefix_of_text(coppice_engine* engine, const char* text,
                                                    size_t bytes, int add_bos,
                                                    coppice_prefix** prefix);
COPPICE_C_API coppice_status coppice_prefix_of_tokens(coppice_engine* engine, const int32_t* tokens,
                                                      size_t count, coppice_prefix** prefix);
COPPICE_C_API coppice_status coppice_prefix_begin(const coppice_prefix* prefix,
                                                  coppice_sequence** sequence);
COPPICE_C_API const int32_t* coppice_prefix_tokens(const coppice_prefix* prefix, size_t* count);
COPPICE_C_API void coppice_prefix_free(coppice_prefix* prefix);

/* ------------------------------------------------------------------------------------ trees */

/* One step in full (JudgedTree of coppice.h): a column for each member of TreeNode, `count` long.
 * Node 0 is the root. */
typedef struct coppice_tree {
  size_t count;
  const int32_t* token;
  const int32_t* parent; /* -1 for the root */
  const int32_t* depth;
  const int32_t* rank;
  const double* draft_prob;
  const double* path_prob;
  const double* value;
  const double* target_prob;
  const uint8_t* accepted;  /* flags */
  const uint8_t* looked_up; /* flags */
  const uint8_t* forced;    /* flags: looked up, as the constraint's text goes on so */
  const int32_t* state;     /* the constraint's, behind the token; below 0: none */
  const int32_t* allowed;   /* tokens that it lets follow; below 0: there is no constraint */
  int64_t draft_passes;
  int32_t bonus; /* the token after the last accepted one */
  int32_t reserved;
  const char* acceptance; /* the rule that judged it */
} coppice_tree;

/* Grows and judges the first tree after the request's prompt, and stops there. */
COPPICE_C_API coppice_status coppice_judge_tree(coppice_engine* engine,
                                                const coppice_request* request,
                                                coppice_tree** tree);
COPPICE_C_API void coppice_tree_free(coppice_tree* tree);

#ifdef __cplusplus
}
#endif

#endif
