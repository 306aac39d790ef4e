#include "cli/prompt.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "cli/option_values.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

// No context holds more; a device that never ends must not fill the memory.
constexpr std::size_t longest_prompt_mib = 64;

void drop_last_newline(std::string& text) {
  // What an editor or echo puts at the end is not meant.
  if (text.empty() || text.back() != '\n') return;
  text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
}

/// Throws Error(usage) for what is no prompt. `remedy`: another one if it is empty.
void check_text(const std::string& text, const std::string& where, const char* remedy = "") {
  if (text.empty()) throw_usage(cat(where, " is empty; give some text", remedy));
  if (!is_valid_utf8(text)) {
    throw_usage(cat(where, ": not valid UTF-8; convert the text to UTF-8"));
  }
}

/// What stands behind a backslash: the byte that it means and the characters that it takes; 0: it
/// means nothing.
std::pair<char, std::size_t> escape_at(std::string_view text) {
  constexpr std::string_view letters = "nrt'\"\\", meanings = "\n\r\t'\"\\";
  if (text.empty()) return {'\0', 0};
  if (const std::size_t at = letters.find(text[0]); at != letters.npos) return {meanings[at], 1};
  const bool digits =
      text.size() > 2 && text[0] == 'x' && hex_digit(text[1]) >= 0 && hex_digit(text[2]) >= 0;
  if (!digits) return {'\0', 0};
  return {static_cast<char>(16 * hex_digit(text[1]) + hex_digit(text[2])), 3};
}

}  // namespace

std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [meant, length] =
        text[0] == '\\' ? escape_at(text.substr(1)) : std::pair<char, std::size_t>{'\0', 0};
    out += length > 0 ? meant : text[0];
    text.remove_prefix(1 + length);
  }
  return out;
}

std::string read_all(std::istream& in, const std::string& where, std::size_t most_mib) {
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > most_mib << 20) {
      throw_usage(cat(where, ": longer than ", most_mib, " MiB; give less text"));
    }
  }
  return text;
}

std::string read_all_of(const std::string& file, const std::string& where, std::size_t most_mib) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    throw_failure(cat(where, " is a folder; give a text file"));
  }
  // Not only a regular file: a pipe will do, as <(...) makes one.
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_failure(cat(where, " cannot be read; check its name and permissions"));
  return read_all(in, where, most_mib);
}

po::options_description prompt_options() {
  po::options_description d(
      "Prompt (standard input if none of these is given, less one newline at its end)");
  d.add_options()("prompt", po::value<std::string>()->value_name("TEXT"), "the text to continue")(
      "prompt-file", po::value<std::string>()->value_name("FILE|-"),
      "a file that holds it; one newline at its end is dropped; -: standard input")(
      "prompt-ids", po::value<std::string>()->value_name("1,2,3"), "its token ids, BOS included")(
      "escape",
      "turn \\n, \\r, \\t, \\', \\\", \\\\ and \\xHH in the prompt into what they mean. "
      "llama.cpp's names, "
      "-p, -f and --file, do so by themselves, as there; --prompt, --prompt-file and standard "
      "input "
      "are otherwise taken as they are")("no-escape", "take what -p, -f and --file give as it is")(
      "no-bos",
      "put no beginning-of-sequence token (or what else tokenizer.json adds) around a text");
  return d;
}

std::string prompt_in_file(const std::string& file) {
  const std::string where = cat("prompt file ", quote(file));
  std::string text = read_all_of(file, where, longest_prompt_mib);
  drop_last_newline(text);
  check_text(text, where);
  return text;
}

namespace {

Prompt given_prompt(const po::variables_map& values) {
  Prompt prompt;
  const auto sources =
      values.count("prompt") + values.count("prompt-file") + values.count("prompt-ids");
  if (sources > 1) throw_usage("give only one of --prompt, --prompt-file and --prompt-ids");
  if (values.count("prompt-ids") != 0) {
    for (const char* name : {"escape", "no-escape"}) {
      if (values.count(name) != 0)
        throw_usage(cat("--", name, " is for a text, not for token ids"));
    }
    prompt.ids = true;
    prompt.tokens = numbers_in<TokenId>("prompt-ids", values["prompt-ids"].as<std::string>(), 0);
    return prompt;
  }
  if (values.count("prompt") != 0) {
    prompt.text = values["prompt"].as<std::string>();
    check_text(prompt.text, "--prompt");
    return prompt;
  }
  const std::string file = text_in(values, "prompt-file");
  if (values.count("prompt-file") != 0 && file != "-") {
    prompt.text = prompt_in_file(file);
    return prompt;
  }
  if (values.count("prompt-file") == 0 && stdin_is_terminal()) {
    throw_usage(
        "no prompt: give --prompt TEXT, --prompt-file FILE or --prompt-ids 1,2,3, or pipe a text "
        "in");
  }
  const char* const where = "standard input";
  prompt.text = read_all(std::cin, where, longest_prompt_mib);
  drop_last_newline(prompt.text);
  check_text(prompt.text, where, ", or --prompt TEXT");
  return prompt;
}

}  // namespace

Prompt read_prompt(const po::variables_map& values) {
  const bool escapes = values.count("escape") != 0;
  if (escapes && values.count("no-escape") != 0) {
    throw_usage("give only one of --escape and --no-escape");
  }
  Prompt prompt = given_prompt(values);
  if (!prompt.ids && escapes) {
    prompt.text = unescaped(prompt.text);
    check_text(prompt.text, "prompt, its escapes turned into bytes");
  }
  return prompt;
}

}  // namespace coppice::cli
