// threads.h: CUDA threads on the processor, so that device code runs where there is no GPU. The
// threads of a block are fibers of one thread of the system: each runs until it meets others, at
// a barrier or in a collective of its warp. Blocks run one after another.
//
// A barrier that not all threads reach, and lanes of a warp in different collectives, are a Fault.
// Data races are not found; reversed runs the threads in the other order, which changes what many of
// them read.
#pragma once
#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

struct uint3 {
  uint32_t x, y, z;
};
inline thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr size_t kStack = 128 << 10;
constexpr int kWarp = 32;

// Meeting holds the values that the lanes of a mask give to their collectives. Two turns are in use
// at a time: a lane may be at the next one while another still reads this one.
struct Meeting {
  struct Turn {
    const char *what;
    uint64_t value[kWarp];
    uint32_t number = 0, came = 0;
  } turns[2];
  uint32_t mask = 0, count[kWarp] = {};  // collectives of each lane so far
};

struct Warp {
  std::map<uint32_t, Meeting> meetings;  // by mask
  uint32_t alive = 0;
};

struct Fiber {
  ucontext_t context;               // where it begins; setjmp and longjmp, which make no system call, go on
  jmp_buf left;
  std::unique_ptr<char[]> stack;
  uint3 place{};
  int lane = 0;
  Warp *warp = nullptr;
  Meeting *meeting = nullptr;       // the last one that it came to
  enum { kNew, kReady, kMeeting, kBarrier, kDone } state = kNew;
};

class Block {
 public:
  Block(uint32_t threads, bool reversed)
      : fibers_(threads), warps_((threads + kWarp - 1) / kWarp), reversed_(reversed) {
    for (uint32_t i = 0; i < threads; i++) {
      Fiber &f = fibers_[i];
      f.stack.reset(new char[kStack]);
      f.place = {i, 0, 0}, f.lane = int(i % kWarp), f.warp = &warps_[i / kWarp];
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = kStack, f.context.uc_link = nullptr;
      makecontext(&f.context, enter, 0);
    }
  }

  // run calls the kernel in all threads.
  void run(const std::function<void()> &kernel);

  Fiber &current() { return *current_; }
  void yield() {
    if (_setjmp(current_->left) == 0) _longjmp(scheduler_, 1);
  }

  // barrier returns the sum of what the threads gave.
  int barrier(int count) {
    counting_ += count;
    current_->state = Fiber::kBarrier;
    yield();
    return counted_;
  }

  // meet gives a value to the lanes of a mask, and returns their values.
  const Meeting::Turn &meet(const char *what, uint32_t mask, uint64_t value) {
    Fiber &f = *current_;
    if (!(mask >> f.lane & 1)) throw Fault(std::string(what) + " without the lane itself");
    Meeting &m = f.warp->meetings[mask];
    m.mask = mask;
    Meeting::Turn &t = m.turns[++m.count[f.lane] & 1];
    if (t.number != m.count[f.lane]) t.number = m.count[f.lane], t.what = what, t.came = 0;
    if (std::strcmp(t.what, what) != 0)
      throw Fault(std::string("lanes of a warp are in ") + t.what + " and in " + what);
    t.value[f.lane] = value, t.came |= 1u << f.lane;
    f.state = Fiber::kMeeting, f.meeting = &m;
    if (!part(f)) yield();
    return t;
  }

 private:
  static void enter();

  // lanes are the fibers of a warp.
  std::pair<size_t, size_t> lanes(size_t warp) const {
    return {warp * kWarp, std::min((warp + 1) * kWarp, fibers_.size())};
  }

  const Meeting::Turn &turn(const Fiber &f) const { return f.meeting->turns[f.meeting->count[f.lane] & 1]; }

  // part lets the lanes of a fiber's meeting continue if all have come, except those that have ended.
  bool part(const Fiber &fiber) {
    const Meeting &m = *fiber.meeting;
    if (((turn(fiber).came ^ m.mask) & m.mask & fiber.warp->alive) != 0) return false;
    const auto [begin, end] = lanes(size_t(fiber.warp - warps_.data()));
    for (size_t i = begin; i < end; i++)
      if (Fiber &f = fibers_[i]; f.state == Fiber::kMeeting && f.meeting == &m) f.state = Fiber::kReady;
    return true;
  }

  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  void go_on(Fiber &f) {
    current_ = &f, threadIdx = f.place;
    if (_setjmp(scheduler_) != 0) return;
    if (f.state != Fiber::kNew) _longjmp(f.left, 1);
    f.state = Fiber::kReady;
    setcontext(&f.context);
  }

  jmp_buf scheduler_;
  Fiber *current_ = nullptr;
  const std::function<void()> *kernel_ = nullptr;
  std::string fault_;
  int counting_ = 0, counted_ = 0;
  bool reversed_;
};

inline thread_local Block *block;

// enter is a fiber: it calls the kernel of each block in turn.
inline void Block::enter() {
  for (Block *b = block;; b->yield()) {
    Fiber &f = *b->current_;
    try {
      (*b->kernel_)();
    } catch (const std::exception &e) {
      b->fault_ = e.what();
    }
    f.state = Fiber::kDone;
    f.warp->alive &= ~(1u << f.lane);
    const auto [begin, end] = b->lanes(size_t(f.warp - b->warps_.data()));
    for (size_t i = begin; i < end; i++)
      if (b->fibers_[i].state == Fiber::kMeeting) b->part(b->fibers_[i]);
  }
}

inline void Block::run(const std::function<void()> &kernel) {
  // 1. All threads begin.
  kernel_ = &kernel, block = this;
  counting_ = 0;
  for (Warp &w : warps_) w = Warp{};
  for (Fiber &f : fibers_) {
    if (f.state != Fiber::kNew) f.state = Fiber::kReady;
    f.warp->alive |= 1u << f.lane;
  }
  for (;;) {
    // 2. Each warp runs until its lanes have ended or wait for other warps.
    for (size_t i = 0; i < warps_.size(); i++) {
      const auto [begin, end] = lanes(reversed_ ? warps_.size() - 1 - i : i);
      for (bool ran = true; ran;) {
        ran = false;
        for (size_t k = 0; k < end - begin; k++) {
          Fiber &f = fibers_[reversed_ ? end - 1 - k : begin + k];
          if (f.state != Fiber::kNew && f.state != Fiber::kReady) continue;
          go_on(f), ran = true;
          if (!fault_.empty()) throw Fault(fault_);
        }
      }
    }
    // 3. They meet at the barrier, if all that are left have come to it.
    size_t done = 0;
    for (Fiber &f : fibers_) {
      if (f.state == Fiber::kMeeting)
        throw Fault(std::string("lanes wait in ") + turn(f).what + " for others, which do not come");
      done += f.state == Fiber::kDone;
    }
    if (done == fibers_.size()) return;
    counted_ = counting_, counting_ = 0;
    for (Fiber &f : fibers_)
      if (f.state == Fiber::kBarrier) f.state = Fiber::kReady;
  }
}

}  // namespace host

// Barriers and collectives.
inline void __syncthreads() { host::block->barrier(0); }
inline int __syncthreads_count(int predicate) { return host::block->barrier(predicate != 0); }
inline void __syncwarp(uint32_t mask = ~0u) { host::block->meet("__syncwarp", mask, 0); }
inline void __threadfence() {}

namespace host {

template <class T> uint64_t bits(T v) {
  static_assert(sizeof(T) <= 8);
  uint64_t b = 0;
  std::memcpy(&b, &v, sizeof v);
  return b;
}

template <class T> T from_bits(uint64_t b) {
  T v;
  std::memcpy(&v, &b, sizeof v);
  return v;
}

// exchanged returns the value of another lane, or the lane's own if that lane has not come.
template <class T> T exchanged(const char *what, uint32_t mask, T v, int from) {
  const Meeting::Turn &t = block->meet(what, mask, bits(v));
  return from >= 0 && from < kWarp && t.came >> from & 1 ? from_bits<T>(t.value[from]) : v;
}

// gathered returns a bit of each lane whose value fits.
template <class F> uint32_t gathered(const char *what, uint32_t mask, uint64_t v, F fits) {
  const Meeting::Turn &t = block->meet(what, mask, v);
  uint32_t b = 0;
  for (int i = 0; i < kWarp; i++) b |= uint32_t(t.came >> i & 1 && fits(t.value[i])) << i;
  return b;
}

// reduced returns what f makes of the values of all lanes.
template <class F> uint32_t reduced(const char *what, uint32_t mask, uint32_t v, F f) {
  const Meeting::Turn &t = block->meet(what, mask, v);
  for (int i = 0; i < kWarp; i++)
    if (t.came >> i & 1 && i != block->current().lane) v = f(v, uint32_t(t.value[i]));
  return v;
}

}  // namespace host

template <class T> T __shfl_sync(uint32_t mask, T v, int from) {
  return host::exchanged("__shfl_sync", mask, v, from & 31);
}
template <class T> T __shfl_xor_sync(uint32_t mask, T v, int by) {
  return host::exchanged("__shfl_xor_sync", mask, v, host::block->current().lane ^ by);
}
template <class T> T __shfl_up_sync(uint32_t mask, T v, int by) {
  return host::exchanged("__shfl_up_sync", mask, v, host::block->current().lane - by);
}
template <class T> T __shfl_down_sync(uint32_t mask, T v, int by) {
  return host::exchanged("__shfl_down_sync", mask, v, host::block->current().lane + by);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return host::gathered("__ballot_sync", mask, predicate != 0, [](uint64_t v) { return v != 0; });
}
template <class T> uint32_t __match_any_sync(uint32_t mask, T v) {
  return host::gathered("__match_any_sync", mask, host::bits(v), [v](uint64_t o) { return o == host::bits(v); });
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t v) {
  return host::reduced("__reduce_max_sync", mask, v, [](uint32_t a, uint32_t b) { return std::max(a, b); });
}
inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t v) {
  return host::reduced("__reduce_min_sync", mask, v, [](uint32_t a, uint32_t b) { return std::min(a, b); });
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v) {
  return host::reduced("__reduce_add_sync", mask, v, [](uint32_t a, uint32_t b) { return a + b; });
}
