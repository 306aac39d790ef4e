// Memory that runs out where no exception may pass.
#pragma once

namespace coppice::cli {

/// What the command says of memory that ran out.
inline constexpr const char* out_of_memory_line =
    "coppice: out of memory; use a smaller model, --kv-tokens or --tree-size\n";

/// For std::set_terminate(): ends the program with that line and code 1 if std::bad_alloc is what
/// it ends for, else as it would end. Destructors of nlohmann::json and paths of libstdc++ take
/// memory.
[[noreturn]] void end_out_of_memory() noexcept;

}  // namespace coppice::cli
