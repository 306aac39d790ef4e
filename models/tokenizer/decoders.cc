#include "models/tokenizer/decoders.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/byte_pieces.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/replacement.h"

namespace coppice::tokenization {
namespace {

constexpr const char* replacement_character = "\xEF\xBF\xBD";

void join(std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  pieces.assign(1, std::move(text));
}

class SpeltBytes : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces, Allowance& allowance) const override {
    for (std::string& piece : pieces) inside(piece, allowance);
    join(pieces);
    pieces.front() = to_valid_utf8(pieces.front());
  }
  void inside(std::string& piece, Allowance&) const override {
    piece = ByteAlphabet::get().bytes_of(piece);
  }
};

class ByteFallback : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces, Allowance&) const override {
    std::vector<std::string> out;
    std::string bytes;  // of the byte pieces since another one
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), replacement_character);
      }
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      if (const int byte = byte_value(piece); byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        flush();
        out.push_back(std::move(piece));
      }
    }
    flush();
    pieces = std::move(out);
  }
  void inside(std::string& piece, Allowance&) const override {
    if (const int byte = byte_value(piece); byte >= 0) piece.assign(1, static_cast<char>(byte));
  }
};

class Fuse : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces, Allowance&) const override { join(pieces); }
  void inside(std::string&, Allowance&) const override {}
};

class Strip : public Decoder {
 public:
  Strip(const JsonPlace& place, bool whole)
      : character_(place.at("content").text()),
        start_(static_cast<std::size_t>(place.at("start").integer(0, 1 << 20))),
        stop_(static_cast<std::size_t>(place.at("stop").integer(0, 1 << 20))),
        whole_(whole) {
    if (character_.empty() || code_point_bytes(character_) != character_.size()) {
      place.at("content").refuse("not one character; fetch the file again");
    }
  }
  void apply(std::vector<std::string>& pieces, Allowance&) const override {
    for (std::string& piece : pieces) strip(piece);
  }
  void inside(std::string& piece, Allowance&) const override {
    if (!whole_) strip(piece);
  }

 private:
  void strip(std::string& piece) const {
    std::string_view rest = piece;
    for (std::size_t i = 0; i < start_ && rest.starts_with(character_); ++i) {
      rest.remove_prefix(character_.size());
    }
    for (std::size_t i = 0; i < stop_ && rest.ends_with(character_); ++i) {
      rest.remove_suffix(character_.size());
    }
    piece = std::string(rest);
  }
  std::string character_;
  std::size_t start_, stop_;
  bool whole_;
};

class Replace : public Decoder {
 public:
  explicit Replace(Replacement replacement) : replacement_(std::move(replacement)) {}
  void apply(std::vector<std::string>& pieces, Allowance& allowance) const override {
    for (std::string& piece : pieces) inside(piece, allowance);
  }
  void inside(std::string& piece, Allowance& allowance) const override {
    piece = replacement_.apply(piece, allowance);
  }

 private:
  Replacement replacement_;
};

class Metaspace : public Decoder {
 public:
  explicit Metaspace(const JsonPlace& place) : mark_(place.at("replacement").text()) {
    if (mark_.empty()) place.at("replacement").refuse("is empty; fetch the file again");
    const auto scheme = place.find("prepend_scheme");
    drops_first_ = scheme ? scheme->text() != "never" : place.flag("add_prefix_space", true);
  }
  void apply(std::vector<std::string>& pieces, Allowance&) const override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = replaced(pieces[i], mark_, i == 0 && drops_first_ ? "" : " ");
    }
  }
  void inside(std::string& piece, Allowance&) const override {
    piece = replaced(piece, mark_, " ");
  }

 private:
  std::string mark_;
  bool drops_first_ = true;
};

}  // namespace

Decoders::Decoders(const JsonPlace& place) : file_(place.file()), spaced_(false) { read(place); }

void Decoders::read(const JsonPlace& place) {
  const std::string& type = place.type();
  if (type == "Sequence") {
    const JsonPlace members = place.at("decoders");
    for (std::size_t i = 0; i < members.size(); ++i) read(members.at(i));
  } else if (type == "ByteLevel") {
    stages_.push_back(std::make_unique<SpeltBytes>());
    whole_ = true;
  } else if (type == "ByteFallback") {
    stages_.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Fuse") {
    stages_.push_back(std::make_unique<Fuse>());
    whole_ = true;
  } else if (type == "Strip") {
    stages_.push_back(std::make_unique<Strip>(place, whole_));
  } else if (type == "Replace") {
    Replacement replacement(place);
    if (whole_ && !replacement.acts_on_single_bytes()) {
      place.refuse(
          "a Replace behind Fuse acts on whole texts, which are not streamed; "
          "put it before");
    }
    stages_.push_back(std::make_unique<Replace>(std::move(replacement)));
  } else if (type == "Metaspace") {
    stages_.push_back(std::make_unique<Metaspace>(place));
  } else {
    place.refuse_type("decoder");
  }
}

std::string Decoders::text_of(std::vector<std::string> pieces) const {
  // Without decoders the library puts spaces between pieces.
  if (spaced_) {
    for (std::size_t i = 1; i < pieces.size(); ++i) pieces[i].insert(0, " ");
  }
  const auto bytes = [&] {
    std::size_t sum = pieces.size();
    for (const std::string& piece : pieces) sum += piece.size();
    return sum;
  };
  Allowance allowance(bytes(), file_);
  for (const auto& stage : stages_) {
    stage->apply(pieces, allowance);
    allowance.write(bytes());
  }
  join(pieces);
  return std::move(pieces.front());
}

std::string Decoders::bytes_of(std::string_view piece) const {
  std::string bytes(piece);
  Allowance allowance(piece.size(), file_);
  for (const auto& stage : stages_) {
    stage->inside(bytes, allowance);
    allowance.write(bytes.size() + 1);
  }
  return bytes;
}

}  // namespace coppice::tokenization
