// Decoding with llama.cpp through its C API, timed with a monotonic clock.
//
// Each line of standard input is a prompt as token ids (BOS included). Prefill runs all of them
// but the last; the clock runs from there until the last new token has been picked by llama.cpp's
// own sampler: greedy, or, with --temperature, sampled. Ends of sequence do not stop it. One JSON
// object a line goes to standard output. With --draft, a chain of --chain tokens is drafted
// greedily and checked in one pass of the target: a guess stays when it is what the target's
// sampler picks there, llama.cpp's own rule. A line "prompt ids : new ids" is not timed: the new
// ids are fed one by one, and each that llama.cpp would not have picked greedily is reported with
// its place and how far its logit is below the best.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

enum { kMaxTokens = 65536, kMaxChain = 32 };

struct options {
  const char* model;
  const char* draft;
  int chain;
  int threads;
  int new_tokens;
  int flash;
  int repack;  // weights into layouts of the CPU's own (AMX among them)
  int gpu_layers;  // kept on a GPU
  int context;     // tokens; 0: as the model says
  enum ggml_type kv;
  int sample_in_graph;
  float temperature;  // the target's; 0: greedy
};

struct runner {
  struct llama_model* model;
  struct llama_context* context;
  struct llama_sampler* sampler;
  struct llama_sampler_seq_config in_graph;
  struct llama_batch batch;
  int past;  // tokens in the KV cache
};

static void die(const char* what) {
  fprintf(stderr, "decode: %s\n", what);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void quiet(enum ggml_log_level level, const char* text, void* data) {
  (void)data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static void open_runner(struct runner* r, const char* file, float temperature,
                        const struct options* o) {
  memset(r, 0, sizeof *r);
  struct llama_model_params m = llama_model_default_params();
  m.n_gpu_layers = o->gpu_layers;
  m.use_extra_bufts = o->repack != 0;
  r->model = llama_model_load_from_file(file, m);
  if (!r->model) die("the model could not be loaded");
  r->sampler = llama_sampler_chain_init(llama_sampler_chain_default_params());
  if (temperature > 0.0f) {
    llama_sampler_chain_add(r->sampler, llama_sampler_init_temp(temperature));
    llama_sampler_chain_add(r->sampler, llama_sampler_init_dist(1));
  } else {
    llama_sampler_chain_add(r->sampler, llama_sampler_init_greedy());
  }

  struct llama_context_params p = llama_context_default_params();
  p.n_ctx = (uint32_t)o->context;
  p.n_threads = o->threads;
  p.n_threads_batch = o->threads;
  p.flash_attn_type = o->flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  p.type_k = o->kv;
  p.type_v = o->kv;
  p.no_perf = true;
  if (o->sample_in_graph) {
    r->in_graph.seq_id = 0;
    r->in_graph.sampler = r->sampler;
    p.samplers = &r->in_graph;
    p.n_samplers = 1;
  }
  r->context = llama_init_from_model(r->model, p);
  if (!r->context) die("the context could not be made");
  r->batch = llama_batch_init((int32_t)llama_n_ctx(r->context), 0, 1);
}

static void push(struct runner* r, llama_token token, int logits) {
  struct llama_batch* b = &r->batch;
  const int i = b->n_tokens++;
  b->token[i] = token;
  b->pos[i] = r->past++;
  b->n_seq_id[i] = 1;
  b->seq_id[i][0] = 0;
  b->logits[i] = (int8_t)logits;
}

static void pass(struct runner* r) {
  if (r->batch.n_tokens != 0 && llama_decode(r->context, r->batch) != 0) die("llama_decode failed");
  r->batch.n_tokens = 0;
}

static void keep(struct runner* r, int tokens) {
  if (tokens < r->past) llama_memory_seq_rm(llama_get_memory(r->context), 0, tokens, -1);
  r->past = tokens;
}

static llama_token pick(struct runner* r, int row) {
  return llama_sampler_sample(r->sampler, r->context, row);
}

static void prefill(struct runner* r, const llama_token* prompt, int count) {
  llama_memory_clear(llama_get_memory(r->context), true);
  r->past = 0;
  for (int i = 0; i + 1 < count; ++i) push(r, prompt[i], 0);
  pass(r);
}

static double plain(struct runner* target, llama_token root, llama_token* out, int count) {
  const double start = now();
  for (int i = 0; i < count; ++i) {
    push(target, root, 1);
    pass(target);
    root = out[i] = pick(target, 0);
  }
  return now() - start;
}

struct chain_counts {
  int target_passes, drafted, accepted;
};

static double chained(struct runner* target, struct runner* draft, int length, llama_token root,
                      llama_token* out, int count, struct chain_counts* counts) {
  llama_token guess[kMaxChain];
  int made = 0, behind = 0;  // behind: the draft lacks the last guess of a fully accepted chain
  llama_token missing = 0;
  const double start = now();
  while (made < count) {
    const int left = count - made - 1;
    const int n = length < left ? length : left;
    const int base = target->past;
    for (int i = 0; i < n; ++i) {
      if (behind) push(draft, missing, 0);
      push(draft, i == 0 ? root : guess[i - 1], 1);
      const int row = behind;
      behind = 0;
      pass(draft);
      guess[i] = pick(draft, row);
    }
    push(target, root, 1);
    for (int i = 0; i < n; ++i) push(target, guess[i], 1);
    pass(target);
    int good = 0;
    for (;;) {
      root = out[made++] = pick(target, good);
      if (good == n || root != guess[good]) break;
      ++good;
    }
    keep(target, base + 1 + good);
    if (n > 0 && good == n) {
      behind = 1;
      missing = guess[n - 1];
    } else if (n > 0) {
      keep(draft, base + 1 + good);
    }
    ++counts->target_passes;
    counts->drafted += n;
    counts->accepted += good;
  }
  return now() - start;
}

static void check(struct runner* target, llama_token root, const llama_token* given, int count) {
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(target->model));
  int differing = 0;
  printf("{\"checked\": %d, \"differing\": [", count);
  for (int i = 0; i < count; ++i) {
    push(target, root, 1);
    pass(target);
    const float* logits = llama_get_logits_ith(target->context, 0);
    int best = 0;
    for (int t = 1; t < vocab; ++t) {
      if (logits[t] > logits[best]) best = t;
    }
    if (best != given[i]) {
      printf("%s[%d, %.9g]", differing++ ? ", " : "", i, (double)(logits[best] - logits[given[i]]));
    }
    root = given[i];
  }
  printf("]}\n");
}

static const char* value_of(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--system") == 0) {
    printf("%s\n%s\n", llama_version(), llama_print_system_info());
    return 0;
  }
  struct options o;
  o.model = value_of(argc, argv, "--model", NULL);
  o.draft = value_of(argc, argv, "--draft", NULL);
  o.chain = atoi(value_of(argc, argv, "--chain", "3"));
  o.threads = atoi(value_of(argc, argv, "--threads", "2"));
  o.new_tokens = atoi(value_of(argc, argv, "--new", "128"));
  o.flash = atoi(value_of(argc, argv, "--flash", "1"));
  o.repack = atoi(value_of(argc, argv, "--repack", "1"));
  o.gpu_layers = atoi(value_of(argc, argv, "--gpu-layers", "0"));
  o.context = atoi(value_of(argc, argv, "--context", "0"));
  o.kv = strcmp(value_of(argc, argv, "--kv", "f16"), "f32") == 0 ? GGML_TYPE_F32 : GGML_TYPE_F16;
  o.sample_in_graph = strcmp(value_of(argc, argv, "--sampler", "host"), "graph") == 0;
  o.temperature = (float)atof(value_of(argc, argv, "--temperature", "0"));
  if (!o.model) die("--model is missing");
  if (o.draft && o.sample_in_graph)
    die("--sampler graph does not go with a chain: it takes one output a pass");
  if (o.context < 0) die("--context is out of range");
  if (o.new_tokens < 1 || o.new_tokens > kMaxTokens) die("--new is out of range");
  if (o.chain < 1 || o.chain > kMaxChain) die("--chain is out of range");

  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct runner target, draft;
  open_runner(&target, o.model, o.temperature, &o);
  if (o.draft) open_runner(&draft, o.draft, 0.0f, &o);

  static llama_token ids[kMaxTokens], out[kMaxTokens];
  static char line[1 << 20];
  int warm = 0;
  while (fgets(line, sizeof line, stdin)) {
    int count = 0, prompt = -1;
    for (char* word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
      if (strcmp(word, ":") == 0) {
        prompt = count;
      } else if (count < kMaxTokens) {
        ids[count++] = atoi(word);
      }
    }
    const int forced = prompt >= 0;
    if (!forced) prompt = count;
    if (prompt < 1) die("an empty prompt");
    const int fresh = forced ? count - prompt : o.new_tokens;
    if (prompt + fresh > (int)llama_n_ctx(target.context))
      die("prompt and new tokens exceed the context");

    if (forced) {
      prefill(&target, ids, prompt);
      check(&target, ids[prompt - 1], ids + prompt, fresh);
      continue;
    }
    // The first passes allocate and page the weights in: they are made once and thrown away.
    double seconds = 0, prefill_seconds = 0;
    struct chain_counts counts;
    for (; warm < 2; ++warm) {
      const int these = warm == 0 && fresh > 8 ? 8 : fresh;
      memset(&counts, 0, sizeof counts);
      const double begin = now();
      prefill(&target, ids, prompt);
      llama_synchronize(target.context);
      prefill_seconds = now() - begin;
      if (o.draft) prefill(&draft, ids, prompt);
      seconds = o.draft ? chained(&target, &draft, o.chain, ids[prompt - 1], out, these, &counts)
                        : plain(&target, ids[prompt - 1], out, these);
    }
    warm = 1;
    printf("{\"seconds\": %.9f, \"prefill_seconds\": %.9f, ", seconds, prefill_seconds);
    if (o.draft) {
      printf("\"target_passes\": %d, \"drafted\": %d, \"accepted\": %d, ", counts.target_passes,
             counts.drafted, counts.accepted);
    }
    printf("\"tokens\": [");
    for (int i = 0; i < fresh; ++i) printf("%s%d", i ? ", " : "", out[i]);
    printf("]}\n");
    fflush(stdout);
  }
  return 0;
}
