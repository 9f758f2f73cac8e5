// SPDX-License-Identifier: Apache-2.0
#include "ceilings.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif

namespace plumb::bench {
namespace {

constexpr std::size_t kArrayBytes = std::size_t{96} << 20;
constexpr std::size_t kPartBytes = std::size_t{1} << 20;  // per thread
constexpr std::size_t kNumFmaParts = 8;
constexpr long kFmaSteps = 100000;  // a part as long as a chunk of an operator: waking threads counts for both
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::align_val_t kAlignment{kHugePage};

#if defined(__x86_64__)
void copy_lines(const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    __builtin_prefetch(from + i + 512);
    for (std::size_t k = 0; k < 16; k += 4) {
      _mm_stream_ps(to + i + k, _mm_load_ps(from + i + k));
    }
  }
  _mm_sfence();
}

float read_lines(const float* from, std::size_t count) {
  __m128 sum[16];
  for (__m128& each : sum)
    each = _mm_setzero_ps();
  for (std::size_t i = 0; i < count; i += 64) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 64; k += 16) {
      __builtin_prefetch(from + i + k + 1024);
    }
#pragma GCC unroll 16
    for (std::size_t k = 0; k < 16; ++k) {
      sum[k] = _mm_add_ps(sum[k], _mm_load_ps(from + i + 4 * k));
    }
  }
  __m128 all = sum[0];
  for (std::size_t k = 1; k < 16; ++k)
    all = _mm_add_ps(all, sum[k]);
  return _mm_cvtss_f32(all);
}

__attribute__((target("avx512f"))) float multiply_add_avx512() {
  __m512 sum[16];
  for (int k = 0; k < 16; ++k) {
    sum[k] = _mm512_set1_ps(static_cast<float>(k));
  }
  const __m512 a = _mm512_set1_ps(0.5f);
  const __m512 b = _mm512_set1_ps(1.0f);
  for (long step = 0; step < kFmaSteps; ++step) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      sum[k] = _mm512_fmadd_ps(sum[k], a, b);
    }
  }
  __m512 all = sum[0];
  for (int k = 1; k < 16; ++k) {
    all = _mm512_add_ps(all, sum[k]);
  }
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx2,fma"))) float multiply_add_avx2() {
  __m256 sum[12];
  for (int k = 0; k < 12; ++k) {
    sum[k] = _mm256_set1_ps(static_cast<float>(k));
  }
  const __m256 a = _mm256_set1_ps(0.5f);
  const __m256 b = _mm256_set1_ps(1.0f);
  for (long step = 0; step < kFmaSteps; ++step) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) {
      sum[k] = _mm256_fmadd_ps(sum[k], a, b);
    }
  }
  __m256 all = sum[0];
  for (int k = 1; k < 12; ++k) {
    all = _mm256_add_ps(all, sum[k]);
  }
  return _mm256_cvtss_f32(all);
}
#else
void copy_lines(const float* from, float* to, std::size_t count) { std::memcpy(to, from, count * sizeof(float)); }
float read_lines(const float* from, std::size_t count) { return std::accumulate(from, from + count, 0.0f); }
#endif

float multiply_add_baseline() {
  float sum[16];
  std::iota(sum, sum + 16, 0.0f);
  for (long step = 0; step < kFmaSteps; ++step) {
    for (float& each : sum) {
      each = each * 0.5f + 1.0f;
    }
  }
  return std::accumulate(sum, sum + 16, 0.0f);
}

struct Fma {
  float (*run)();
  double flops;
};
Fma fma_of(cpu::Isa isa) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::avx512) return {multiply_add_avx512, 2.0 * 16 * 16 * kFmaSteps};
  if (isa == cpu::Isa::avx2) return {multiply_add_avx2, 2.0 * 12 * 8 * kFmaSteps};
#endif
  static_cast<void>(isa);
  return {multiply_add_baseline, 2.0 * 16 * kFmaSteps};
}

// Calls work(thread) on every thread; returns the seconds.
template <class Work>
double timed(cpu::CpuThreads& threads, const Work& work) {
  const double start = now_seconds(threads);
  threads.run([](void* context, int thread) { (*static_cast<const Work*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(&work)));
  return now_seconds(threads) - start;
}

void keep(float value) {
  volatile float sink = value;
  static_cast<void>(sink);
}

}  // namespace

#if defined(__linux__)
struct Pinned::Before {
  cpu_set_t processors;
};

Pinned::Pinned(cpu::CpuThreads& threads) {
  cpu_set_t allowed;
  if (threads.num_threads() == 1 || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  if (CPU_COUNT(&allowed) < threads.num_threads()) return;
  before_ = std::make_unique<Before>(Before{allowed});
  threads.run(
      [](void* context, int thread) {
        const auto& all = *static_cast<const cpu_set_t*>(context);
        for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
          if (!CPU_ISSET(processor, &all) || thread-- > 0) continue;
          cpu_set_t own;
          CPU_ZERO(&own);
          CPU_SET(processor, &own);
          static_cast<void>(sched_setaffinity(0, sizeof(own), &own));
          return;
        }
      },
      &allowed);
}
Pinned::~Pinned() {
  if (before_) static_cast<void>(sched_setaffinity(0, sizeof(before_->processors), &before_->processors));
}
#else
struct Pinned::Before {};
Pinned::Pinned(cpu::CpuThreads&) {}
Pinned::~Pinned() = default;
#endif

double now_seconds(const cpu::CpuThreads& threads) {
  if (threads.num_threads() == 1) {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Lines::Lines(std::size_t bytes) : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))), bytes_(bytes) {
#if defined(__linux__)
  // Large pages, where the system has them to give: rows of many tensors side by side would exhaust the address cache.
  if (bytes >= kHugePage) static_cast<void>(madvise(data_.get(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
  std::memset(data_.get(), 0, bytes);
}
void Lines::Free::operator()(std::byte* data) const { ::operator delete(data, kAlignment); }

void Ceilings::Parts::add(std::size_t part, double seconds) {
  if (part >= fastest_.size()) fastest_.resize(part + 1, seconds);
  fastest_[part] = std::min(fastest_[part], seconds);
}
double Ceilings::Parts::total() const { return std::accumulate(fastest_.begin(), fastest_.end(), 0.0); }

Ceilings::Ceilings(cpu::CpuThreads& threads) : threads_(threads), from_(kArrayBytes), to_(kArrayBytes) {}

void Ceilings::measure() {
  const auto num_threads = static_cast<std::size_t>(threads_.num_threads());
  const std::size_t part_bytes = kPartBytes * num_threads;
  const std::size_t num_parts = kArrayBytes / part_bytes;
  constexpr std::size_t part_floats = kPartBytes / sizeof(float);
  for (std::size_t part = 0; part < num_parts; ++part) {
    const auto offset = [&](int thread) {
      return (part * num_threads + static_cast<std::size_t>(thread)) * part_floats;
    };
    copy_.add(part, timed(threads_, [&](int thread) {
                copy_lines(from_.as<float>() + offset(thread), to_.as<float>() + offset(thread), part_floats);
              }));
  }
  for (std::size_t part = 0; part < num_parts; ++part) {
    const auto offset = [&](int thread) {
      return (part * num_threads + static_cast<std::size_t>(thread)) * part_floats;
    };
    read_.add(part,
              timed(threads_, [&](int thread) { keep(read_lines(from_.as<float>() + offset(thread), part_floats)); }));
  }
  const Fma fma = fma_of(cpu::best_isa());
  for (std::size_t part = 0; part < kNumFmaParts; ++part) {
    fma_.add(part, timed(threads_, [&](int) { keep(fma.run()); }));
  }
  copied_bytes_ = 2.0 * static_cast<double>(num_parts * part_bytes);
  read_bytes_ = static_cast<double>(num_parts * part_bytes);
  flops_ = fma.flops * static_cast<double>(kNumFmaParts * num_threads);
}

}  // namespace plumb::bench
