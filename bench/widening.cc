#include "widening.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace coppice::bench {
namespace {

// As models/config.cc has them: beyond any model, small enough for products in 64 bits.
constexpr std::int64_t most_width = std::int64_t{1} << 20;
constexpr std::int64_t most_layers = std::int64_t{1} << 12;

constexpr std::int64_t ffn_multiple = 64;
constexpr double cost_tolerance = 0.02;

/// How often `copies` places dealt out in turn to `units` come to `unit`.
std::int64_t copies_of(std::int64_t unit, std::int64_t units, std::int64_t places) {
  return places / units + (unit < places % units ? 1 : 0);
}

/// Query heads of one KV head divide the places of its copies evenly.
bool heads_fit(const ModelShape& small, std::int64_t heads, std::int64_t kv_heads) {
  if (kv_heads < small.kv_heads || heads < kv_heads || heads % kv_heads != 0) return false;
  const std::int64_t group = small.heads / small.kv_heads;
  for (std::int64_t kv = 0; kv < small.kv_heads; ++kv) {
    if (copies_of(kv, small.kv_heads, kv_heads) * (heads / kv_heads) % group != 0) return false;
  }
  return true;
}

/// One of `places`: a copy of the small model's `source`, the copy-th of `copies`.
struct Place {
  std::int64_t source, copy, copies;
};

/// Places dealt out in turn: 0, 1, ..., units - 1, 0, 1, ...
std::vector<Place> dealt(std::int64_t units, std::int64_t places) {
  std::vector<Place> all;
  for (std::int64_t p = 0; p < places; ++p) {
    all.push_back({p % units, p / units, copies_of(p % units, units, places)});
  }
  return all;
}

/// KV heads are dealt out in turn; the places of a KV head's copies, in turn, to its query heads.
std::vector<Place> query_places(const ModelShape& small, const ModelShape& wide) {
  const std::int64_t small_group = small.heads / small.kv_heads;
  const std::int64_t group = wide.heads / wide.kv_heads;
  std::vector<Place> all;
  for (const Place& kv : dealt(small.kv_heads, wide.kv_heads)) {
    for (std::int64_t j = 0; j < group; ++j) {
      const std::int64_t place = kv.copy * group + j;
      all.push_back({kv.source * small_group + place % small_group, place / small_group,
                     kv.copies * group / small_group});
    }
  }
  return all;
}

/// Every place stands for `width` consecutive elements (a head's, or one).
std::vector<std::int32_t> elements(const std::vector<Place>& places, std::int64_t width) {
  std::vector<std::int32_t> all;
  for (const Place& place : places) {
    for (std::int64_t i = 0; i < width; ++i) {
      all.push_back(static_cast<std::int32_t>(place.source * width + i));
    }
  }
  return all;
}

/// Rows of a projection of heads of `width`, each at a place whose elements are those of a head of
/// `small_width`, spread out. `rotated`: element i pairs with i + width / 2, and copies keep their
/// frequencies; what lies between stands for nothing. Else each element has its copies beside it.
std::vector<std::int32_t> head_rows(const std::vector<Place>& places, std::int64_t small_width,
                                    std::int64_t width, bool rotated) {
  const std::int64_t copies = width / small_width;
  std::vector<std::int32_t> all;
  for (const Place& place : places) {
    for (std::int64_t i = 0; i < width; ++i) {
      const bool idle = rotated && i % (width / 2) % copies != 0;
      all.push_back(idle ? Copying::no_source
                         : static_cast<std::int32_t>(place.source * small_width + i / copies));
    }
  }
  return all;
}

std::vector<Column> weighted(const std::vector<Place>& places, std::int64_t width,
                             float factor = 1.0f, std::int64_t element_copies = 1) {
  std::map<std::int64_t, std::vector<float>> scales;
  std::vector<Column> all;
  for (const Place& place : places) {
    std::vector<float>& of_count = scales[place.copies];
    if (of_count.empty()) of_count = balanced_scales(place.copies);
    const float scale = of_count[static_cast<std::size_t>(place.copy)] * factor /
                        static_cast<float>(element_copies);
    for (std::int64_t i = 0; i < width * element_copies; ++i) {
      all.push_back({static_cast<std::int32_t>(place.source * width + i / element_copies), scale});
    }
  }
  return all;
}

std::vector<Column> unweighted(const std::vector<Place>& places, float scale = 1.0f) {
  std::vector<Column> all;
  for (const Place& place : places) {
    all.push_back({static_cast<std::int32_t>(place.source), scale});
  }
  return all;
}

float nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

std::int64_t nearest_multiple(double value, std::int64_t of) {
  return std::llround(value / static_cast<double>(of)) * of;
}

/// Numbers of heads and KV heads that fit and come nearest to those wanted.
std::optional<std::pair<std::int64_t, std::int64_t>> nearest_heads(const ModelShape& small,
                                                                   double heads, double kv_heads) {
  std::optional<std::pair<std::int64_t, std::int64_t>> best;
  double best_distance = std::numeric_limits<double>::infinity();
  const auto most_kv = static_cast<std::int64_t>(2 * kv_heads) + small.kv_heads;
  const auto most = static_cast<std::int64_t>(2 * heads) + small.heads;
  for (std::int64_t kv = small.kv_heads; kv <= most_kv; ++kv) {
    for (std::int64_t q = kv; q <= most; q += kv) {
      const double distance =
          std::fabs(static_cast<double>(q) - heads) + std::fabs(static_cast<double>(kv) - kv_heads);
      // The costlier one of two equally near.
      if (distance <= best_distance && heads_fit(small, q, kv)) {
        best = {q, kv};
        best_distance = distance;
      }
    }
  }
  return best;
}

std::string heads_text(const ModelShape& s) {
  return cat(s.heads, " heads and ", s.kv_heads, " KV heads of ", s.head_dim);
}

}  // namespace

std::vector<float> balanced_scales(std::int64_t copies) {
  // Splits copies - 2^k of the 2^k parts of size 2^-k in two.
  const int k = std::bit_width(static_cast<std::uint64_t>(copies)) - 1;
  const std::int64_t split = copies - (std::int64_t{1} << k);
  const std::int64_t whole = copies - 2 * split;
  std::vector<float> scales;
  for (std::int64_t i = 0; i < copies; ++i) {
    scales.push_back(std::ldexp(1.0f, i < whole ? -k : -k - 1));
  }
  return scales;
}

FamilyScales scales_of(const ModelShape& wide, double small_epsilon) {
  if (wide.family == ShapeFamily::llama) return {1.0f, 1.0f, 1.0f, small_epsilon};
  FamilyScales scales;
  // Far above 1, and yet squares of the stream stay far below the largest f32.
  scales.embedding = 0x1p36f;
  scales.stream = scales.embedding;
  if (wide.family == ShapeFamily::gemma3) {
    scales.stream *= nearest_bf16(std::sqrt(static_cast<float>(wide.hidden)));
  }
  const auto exact =
      static_cast<float>(std::sqrt(small_epsilon) * static_cast<double>(scales.stream));
  scales.idle_norm = nearest_bf16(exact);
  // A norm of Gemma's that scales to the stream has both as its weight.
  const float both = scales.idle_norm * scales.stream;
  if (nearest_bf16(both) != both) scales.idle_norm = std::exp2(std::round(std::log2(exact)));
  scales.epsilon = static_cast<double>(scales.idle_norm) * static_cast<double>(scales.idle_norm);
  return scales;
}

void require_fit(const ModelShape& small, const ModelShape& wide) {
  const auto require = [](bool good, const auto&... message) {
    if (!good) throw_failure(cat(message...));
  };
  // Only Gemma's config says what scores are divided by.
  const std::int64_t copies = wide.head_dim / small.head_dim;
  const bool head_fits = wide.family == ShapeFamily::gemma3
                             ? wide.head_dim % small.head_dim == 0 &&
                                   std::has_single_bit(static_cast<std::uint64_t>(copies))
                             : wide.head_dim == small.head_dim;
  require(head_fits, "heads of ", wide.head_dim, " cannot be copies of the source's heads of ",
          small.head_dim);
  require(wide.vocab == small.vocab, "a vocabulary of ", wide.vocab, " cannot be the source's of ",
          small.vocab);
  require(
      wide.hidden >= small.hidden && wide.hidden % small.hidden == 0 && wide.hidden <= most_width,
      "hidden size ", wide.hidden, " is no multiple of the source's ", small.hidden, " (up to ",
      most_width, "); choose one");
  require(wide.layers >= small.layers && wide.layers <= most_layers, wide.layers,
          " layers cannot hold the source's ", small.layers, "; choose from ", small.layers, " to ",
          most_layers);
  require(wide.ffn >= small.ffn && wide.ffn <= most_width, "FFN size ", wide.ffn,
          " cannot hold the source's ", small.ffn, " units; choose from ", small.ffn, " to ",
          most_width);
  require(wide.heads >= 1 && wide.kv_heads >= 1 && wide.heads * wide.head_dim <= most_width,
          heads_text(wide), " are no heads for attention; choose from 1 to ",
          most_width / wide.head_dim);
  require(heads_fit(small, wide.heads, wide.kv_heads), heads_text(wide),
          " cannot be copies of the source's ", small.heads, " and ", small.kv_heads,
          " with every query head beside its own KV head and as often as its neighbours; choose "
          "multiples of them");
}

std::vector<WideTensor> wide_tensors(const ModelShape& small, bool tied, double epsilon,
                                     const ModelShape& wide, ExtraLayers extra) {
  require_fit(small, wide);
  const FamilyScales scales = scales_of(wide, epsilon);
  const bool is_gemma = wide.family == ShapeFamily::gemma3;
  const std::vector<Place> stream = dealt(small.hidden, wide.hidden);
  const std::vector<Place> units = dealt(small.ffn, wide.ffn);
  const std::vector<Place> kv_heads = dealt(small.kv_heads, wide.kv_heads);
  const std::vector<Place> query_heads = query_places(small, wide);
  const std::vector<Place> tokens = dealt(small.vocab, small.vocab);

  // By what follows "model.layers.N." or, outside the layers, by the whole name.
  std::map<std::string, std::shared_ptr<const Copying>> copyings;
  const auto add = [&](const char* name, std::vector<std::int32_t> rows,
                       std::vector<Column> columns, float added = 0.0f) {
    copyings[cat(name, ".weight")] =
        std::make_shared<const Copying>(Copying{std::move(rows), std::move(columns), added});
  };
  // Gemma's norms are stored as w - 1, which is a bf16 number where w is one of at least 1/2.
  const float norm_scale = is_gemma ? 8.0f : 1.0f;
  const std::vector<Column> reads_stream = weighted(stream, 1, 1.0f / norm_scale);
  const std::vector<std::int32_t> writes_stream = elements(stream, 1);
  // What is added to the stream is scaled by the norm behind it, if there is one.
  const float written = is_gemma ? 1.0f : scales.stream;
  const char* ffn_norm = is_gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  for (const char* norm : {"input_layernorm", ffn_norm, "model.norm"}) {
    add(norm, {0}, unweighted(stream, norm_scale), is_gemma ? -1.0f : 0.0f);
  }
  add("model.embed_tokens", elements(tokens, 1), unweighted(stream, scales.embedding));
  const std::int64_t dim = small.head_dim, wide_dim = wide.head_dim;
  add("self_attn.q_proj", head_rows(query_heads, dim, wide_dim, true), reads_stream);
  add("self_attn.k_proj", head_rows(kv_heads, dim, wide_dim, true), reads_stream);
  add("self_attn.v_proj", head_rows(kv_heads, dim, wide_dim, false), reads_stream);
  add("self_attn.o_proj", writes_stream, weighted(query_heads, dim, written, wide_dim / dim));
  add("mlp.gate_proj", elements(units, 1), reads_stream);
  add("mlp.up_proj", elements(units, 1), reads_stream);
  add("mlp.down_proj", writes_stream, weighted(units, 1, written));
  add("lm_head", elements(tokens, 1), reads_stream);

  std::vector<WideTensor> all;
  const std::string layer_prefix = "model.layers.";
  for (Tensor& tensor : tensors_of(wide)) {
    WideTensor made{std::move(tensor), {}, {}, 1.0f};
    const std::string& name = made.tensor.name;
    const bool in_layer = name.rfind(layer_prefix, 0) == 0;
    const std::string kind = in_layer ? name.substr(name.find('.', layer_prefix.size()) + 1) : name;
    if (in_layer && std::stoll(name.substr(layer_prefix.size())) >= small.layers) {
      const bool writes = kind == "self_attn.o_proj.weight" || kind == "mlp.down_proj.weight";
      made.factor = extra == ExtraLayers::zero ? 0.0f : writes ? extra_layer_factor : 1.0f;
    } else if (const auto copying = copyings.find(kind); copying != copyings.end()) {
      made.source = tied && name == "lm_head.weight" ? "model.embed_tokens.weight" : name;
      if (kind == cat(ffn_norm, ".weight")) {
        made.source =
            cat(name.substr(0, name.size() - kind.size()), "post_attention_layernorm.weight");
      }
      made.copying = copying->second;
    } else {  // a norm that Llama does not have
      const bool of_heads = kind.rfind("self_attn.", 0) == 0;
      made.tensor.norm = of_heads ? scales.idle_norm : scales.idle_norm * scales.stream;
    }
    all.push_back(std::move(made));
  }
  return all;
}

FittedShape fitted_shape(const ModelShape& small, const std::string& name,
                         const ModelShape& published) {
  FittedShape fitted{published, 0, {}};
  ModelShape& shape = fitted.shape;
  shape.vocab = small.vocab;
  const bool spreads_heads =
      published.family == ShapeFamily::gemma3 && published.head_dim % small.head_dim == 0;
  if (!spreads_heads) shape.head_dim = small.head_dim;
  if (published.family == ShapeFamily::gemma3 && small.family != published.family) {
    fitted.notes.push_back("the source's activation, which costs what Gemma's does");
  }
  shape.hidden =
      std::max(small.hidden, nearest_multiple(static_cast<double>(published.hidden), small.hidden));
  if (shape.hidden != published.hidden) {
    fitted.notes.push_back(cat("hidden size ", shape.hidden, ", the multiple of the source's ",
                               small.hidden, " nearest to ", published.hidden));
  }
  shape.layers = std::max(small.layers, published.layers);
  if (shape.layers != published.layers) {
    fitted.notes.push_back(
        cat(shape.layers, " layers, the source's, instead of ", published.layers));
  }
  const double dims = static_cast<double>(published.head_dim) / static_cast<double>(shape.head_dim);
  const auto heads = nearest_heads(small, dims * static_cast<double>(published.heads),
                                   dims * static_cast<double>(published.kv_heads));
  if (!heads) throw_failure(cat("no number of heads near ", name, "'s fits the source's"));
  std::tie(shape.heads, shape.kv_heads) = *heads;
  if (heads_text(shape) != heads_text(published)) {
    fitted.notes.push_back(cat(heads_text(shape), " instead of ", heads_text(published)));
  }

  shape.ffn = 0;
  const auto wanted = static_cast<double>(published.streamed_parameters());
  const double missing = wanted - static_cast<double>(shape.streamed_parameters());
  shape.ffn = nearest_multiple(missing / static_cast<double>(3 * shape.hidden * shape.layers),
                               ffn_multiple);
  fitted.added_ffn = shape.ffn - published.ffn;
  if (fitted.added_ffn != 0) {
    fitted.notes.push_back(cat(shape.ffn, " FFN units, ", std::abs(fitted.added_ffn),
                               fitted.added_ffn > 0 ? " more" : " fewer", " in every layer than ",
                               published.ffn, ": with the vocabulary of ", shape.vocab,
                               " instead of ", published.vocab, " a pass reads as many bytes"));
  }
  const double share = static_cast<double>(shape.streamed_parameters()) / wanted;
  if (shape.ffn < small.ffn || std::fabs(share - 1.0) > cost_tolerance) {
    throw_failure(cat(name, " has no shape near it that holds the source (", small.layers,
                      " layers, hidden size ", small.hidden, ", ", heads_text(small), ", ",
                      small.ffn, " FFN units) at the same cost; choose a larger shape or give ",
                      "--hidden, --layers, --heads, --kv-heads and --ffn"));
  }
  require_fit(small, shape);
  return fitted;
}

void copy_row(std::span<const float> row, std::span<const Column> columns, float added,
              std::span<std::uint16_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Column& column = columns[i];
    const auto bits = std::bit_cast<std::uint32_t>(
        row[static_cast<std::size_t>(column.source)] * column.scale + added);
    out[i] = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

}  // namespace coppice::bench
