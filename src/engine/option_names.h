// The values of options that name_of() gives a name, for whoever reads or lists names.
#pragma once

#include <array>

#include "coppice.h"

namespace coppice {

/// The rules themselves.
inline constexpr std::array all_acceptances = {Acceptance::rejection, Acceptance::coupled};
/// What a request may name.
inline constexpr std::array acceptances_and_auto = {Acceptance::automatic, Acceptance::rejection,
                                                    Acceptance::coupled};

inline constexpr std::array all_devices = {DeviceKind::automatic, DeviceKind::cpu,
                                           DeviceKind::cuda};
inline constexpr std::array all_lookups = {Lookup::automatic, Lookup::none, Lookup::text,
                                           Lookup::engine};
inline constexpr std::array all_kv_dtypes = {KvDtype::automatic, KvDtype::f32, KvDtype::bf16,
                                             KvDtype::f16};
inline constexpr std::array all_weight_roundings = {
    WeightRounding::keep, WeightRounding::q8_0, WeightRounding::q6_k, WeightRounding::q4_k,
    WeightRounding::q4_0, WeightRounding::fp8,  WeightRounding::int4};
inline constexpr std::array all_cpu_dtypes = {CpuDtype::automatic, CpuDtype::f32, CpuDtype::bf16};

}  // namespace coppice
