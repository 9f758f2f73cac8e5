// SPDX-License-Identifier: Apache-2.0
#include "lower_slots.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"
#include "slot_pool.hpp"

namespace plumb {

namespace {

constexpr std::int32_t nowhere = -1;

struct Occupancy {
  std::int32_t slot = nowhere;
  std::int32_t last_position = nowhere;  // last position of the rank's order that touches the tenant
};

template <class T>
std::uint32_t size_of(const std::vector<T>& pool) {
  return static_cast<std::uint32_t>(pool.size());
}

Wait finished(StepRef step) { return {step.comm ? Wait::On::comm : Wait::On::compute, step.index}; }

class SlotAssigner {
 public:
  SlotAssigner(const Program& program, const std::vector<ChunkShape>& shapes, RankId rank, Steps& steps)
      : program_(program),
        routing_(program.routing),
        shapes_(shapes),
        steps_(steps),
        rank_(rank),
        out_(steps.ranks[rank.index()]),
        times_(steps.times[rank.index()]),
        tenants_(program, shapes, rank),
        microbatches_(static_cast<std::size_t>(program.layout.microbatches())),
        occupancies_(num_tenancies * tenants_.num_rows() * microbatches_),
        last_reader_(tenants_.num_rows() * microbatches_, nowhere),
        previous_add_(tenants_.num_rows() * microbatches_, nowhere),
        receive_waits_(out_.comm.size()) {}

  void assign() {
    find_last_positions();
    for (const StepRef step : out_.order) {
      step_waits_.clear();
      step_releases_.clear();
      if (step.comm) {
        fill_comm(step);
      } else {
        post_receives_before(step.index);
        fill_compute(step);
      }
      ++position_;
    }
    out_.num_value_slots = pools_[static_cast<std::size_t>(SlotClass::value)].num_slots();
    out_.num_gradient_slots = pools_[static_cast<std::size_t>(SlotClass::gradient)].num_slots();
  }

 private:
  Occupancy& occupancy(const Tenant& tenant) {
    const std::size_t row = static_cast<std::size_t>(tenant.tenancy) * tenants_.num_rows() + tenant.row;
    return occupancies_[row * microbatches_ + tenant.microbatch.index()];
  }
  SlotPool& pool_of(const Tenant& tenant) { return pools_[static_cast<std::size_t>(slot_class(tenant.tenancy))]; }
  std::size_t cell(std::size_t row, Microbatch m) const { return row * microbatches_ + m.index(); }

  void find_last_positions() {
    std::int32_t position = 0;
    std::int32_t computes = 0;
    for (const StepRef step : out_.order) {
      const auto touch = [&](const Tenant& tenant) { occupancy(tenant).last_position = position; };
      if (step.comm) {
        const CommStep& comm = out_.comm[static_cast<std::size_t>(step.index)];
        tenants_.for_each_segment(comm, touch);
        if (comm.kind == CommKind::receive) {
          receives_.push_back({step.index, computes});
        }
      } else {
        tenants_.for_each_operand(out_.compute[static_cast<std::size_t>(step.index)].compute,
                                  [&](Role, BlockId, const Tenant& tenant) { touch(tenant); });
        ++computes;
      }
      ++position;
    }
  }

  // A receive takes its slots `post_ahead` computations before its message starts. Receives keep their order.
  void post_receives_before(std::int32_t compute) {
    while (program_.post_ahead > 0 && next_receive_ < receives_.size() &&
           receives_[next_receive_].computes_before - program_.post_ahead <= compute) {
      post(receives_[next_receive_++].comm, times_.compute[static_cast<std::size_t>(compute)].start);
    }
  }

  void post(std::int32_t comm, std::int64_t at) {
    std::vector<Wait>& waits = receive_waits_[static_cast<std::size_t>(comm)];
    tenants_.for_each_segment(out_.comm[static_cast<std::size_t>(comm)],
                              [&](const Tenant& tenant) { allocate(tenant, at, waits); });
  }

  void allocate(const Tenant& tenant, std::int64_t at, std::vector<Wait>& waits) {
    SlotPool& pool = pool_of(tenant);
    const std::int32_t slot = pool.take(at);
    occupancy(tenant).slot = slot;
    const std::vector<Wait>& former = pool.former_users(slot);
    waits.insert(waits.end(), former.begin(), former.end());
  }

  // Takes a slot at a planned time if the tenant has none yet; true if it did.
  bool touch(const Tenant& tenant, std::int64_t at) {
    if (occupancy(tenant).slot != nowhere) {
      return false;
    }
    allocate(tenant, at, step_waits_);
    return true;
  }

  void release_if_last(const Tenant& tenant, StepRef step) {
    if (tenant.tenancy == Tenancy::value && !step.comm) {
      last_reader_[cell(tenant.row, tenant.microbatch)] = step.index;
    }
    const Occupancy& here = occupancy(tenant);
    if (here.last_position != position_) {
      return;
    }
    std::vector<Wait> users = users_of(tenant, step);
    std::int64_t free_at = 0;
    for (const Wait& user : users) {
      free_at = std::max(free_at, times_.end_of(user));
    }
    pool_of(tenant).give_back(here.slot, users, free_at);
    std::erase(users, finished(step));
    step_releases_.push_back({{slot_class(tenant.tenancy), here.slot}, std::move(users)});
  }

  // What must finish before the slot may be overwritten. Partials and gradients are used in a chain, so the last user
  // stands for all. A value has independent users: this rank's computations and one send per child holding.
  std::vector<Wait> users_of(const Tenant& tenant, StepRef last) const {
    std::vector<Wait> users{finished(last)};
    if (tenant.tenancy != Tenancy::value) {
      return users;
    }
    const Holding& holding = routing_.holdings[tenants_.holding_of_row(tenant.row).index()];
    for (const HoldingId child : holding.children) {
      const std::size_t transfer = routing_.holdings[child.index()].transfer.index();
      users.push_back({Wait::On::comm, steps_.send_forward.at(transfer, tenant.microbatch)});
    }
    const std::int32_t reader = last_reader_[cell(tenant.row, tenant.microbatch)];
    if (reader != nowhere) {
      users.push_back({Wait::On::compute, reader});
    }
    return users;
  }

  void fill_compute(StepRef self) {
    ComputeStep& step = out_.compute[static_cast<std::size_t>(self.index)];
    const bool forward = step.compute.op == Op::forward;
    step.operands.begin = size_of(out_.operands);
    tenants_.for_each_operand(step.compute, [&](Role role, BlockId block, const Tenant& tenant) {
      const bool first_touch = touch(tenant, times_.compute[static_cast<std::size_t>(self.index)].start);
      const bool accumulates = role == Role::grad_source || role == Role::grad_closed;
      const bool writes =
          role == Role::grad_partial_in || (forward && (role == Role::closed || role == Role::partial_out));
      require(!first_touch || accumulates || writes,
              [&] { return fmt::format("lower: {} reads a slot that nothing filled", to_string(step.compute)); });
      out_.operands.push_back({role, accumulates && first_touch, occupancy(tenant).slot, block});
    });
    step.operands.end = size_of(out_.operands);
    tenants_.for_each_operand(step.compute,
                              [&](Role, BlockId, const Tenant& tenant) { release_if_last(tenant, self); });
    add_arrivals(step.compute);
    std::erase_if(step_waits_,
                  [](const Wait& wait) { return wait.on == Wait::On::compute; });  // list order gives these
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
  }

  void add_arrivals(const Compute& compute) {
    const Microbatch m = compute.microbatch;
    if (compute.op == Op::forward) {
      for (const TransferId id : routing_.into_chunk[compute.chunk.index()]) {
        step_waits_.push_back({Wait::On::comm, steps_.receive_forward.at(id.index(), m)});
      }
      return;
    }
    if (compute.op == Op::backward_weight) {
      return;
    }
    if (shapes_[compute.chunk.index()].partial_out) {
      for (const TransferId id : routing_.into_chunk[compute.chunk.next().index()]) {
        if (routing_.transfers[id.index()].partial) {
          step_waits_.push_back({Wait::On::comm, steps_.receive_backward.at(id.index(), m)});
        }
      }
    }
    for (const HoldingId id : shapes_[compute.chunk.index()].closed) {
      if (!routing_.holdings[id.index()].children.empty()) {
        step_waits_.push_back({Wait::On::comm, steps_.last_add.at(id.index(), m)});
      }
    }
  }

  void fill_comm(StepRef self) {
    CommStep& step = out_.comm[static_cast<std::size_t>(self.index)];
    const std::int64_t planned_start = times_.comm[static_cast<std::size_t>(self.index)].start;
    if (step.kind == CommKind::receive) {
      if (next_receive_ < receives_.size() && receives_[next_receive_].comm == self.index) {
        post(receives_[next_receive_++].comm, planned_start);
      }
      step_waits_ = std::move(receive_waits_[static_cast<std::size_t>(self.index)]);
    }
    step.segments.begin = size_of(out_.segments);
    bool is_target = true;  // the first segment of an add or zero is what it writes
    tenants_.for_each_segment(step, [&](const Tenant& tenant) {
      const bool first_touch = touch(tenant, planned_start);
      require(!first_touch || (is_target && (step.kind == CommKind::add || step.kind == CommKind::zero)), [&] {
        return fmt::format("lower: communication step {} of rank {} reads a slot that nothing filled", self.index,
                           rank_.value);
      });
      step.first_touch = step.first_touch || (first_touch && step.kind == CommKind::add);
      out_.segments.push_back({slot_class(tenant.tenancy), occupancy(tenant).slot});
      is_target = false;
    });
    step.segments.end = size_of(out_.segments);
    tenants_.for_each_segment(step, [&](const Tenant& tenant) { release_if_last(tenant, self); });
    add_producers(step, self);
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
  }

  void add_producers(const CommStep& step, StepRef self) {
    const Message& message = program_.messages[step.message.index()];
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    const std::size_t t = message.transfer.index();
    const Microbatch m = message.microbatch;
    if (step.kind == CommKind::add) {
      const HoldingId parent = routing_.holdings[step.holding.index()].parent;
      const std::vector<ChunkId>& readers = routing_.holdings[parent.index()].readers;
      step_waits_.push_back({Wait::On::comm, steps_.receive_backward.at(t, m)});
      if (!readers.empty()) {
        step_waits_.push_back({Wait::On::compute, steps_.backward.at(readers.front().index(), m)});
      }
      std::int32_t& previous = previous_add_[cell(tenants_.row_of(parent), m)];
      if (previous != nowhere) {
        step_waits_.push_back({Wait::On::comm, previous});
      }
      previous = self.index;
    } else if (step.kind == CommKind::send && message.direction == Direction::forward) {
      if (transfer.after_arrival.value >= 0) {
        step_waits_.push_back({Wait::On::comm, steps_.receive_forward.at(transfer.after_arrival.index(), m)});
      } else {
        step_waits_.push_back({Wait::On::compute, steps_.forward.at(transfer.after_chunk.index(), m)});
      }
    } else if (step.kind == CommKind::send) {
      step_waits_.push_back({Wait::On::compute, steps_.backward.at(transfer.to_chunk.index(), m)});
      for (const HoldingId id : transfer.holdings) {
        for (const StepTable* table : {&steps_.last_add, &steps_.zero}) {
          if (table->at(id.index(), m) != nowhere) {
            step_waits_.push_back({Wait::On::comm, table->at(id.index(), m)});
          }
        }
      }
    }
  }

  // Ascending and without repetition; the latest computation stands for all earlier ones.
  Range store_waits(std::vector<Wait>& waits) {
    const std::uint32_t begin = size_of(out_.waits);
    std::sort(waits.begin(), waits.end(),
              [](const Wait& a, const Wait& b) { return a.on != b.on ? a.on < b.on : a.step < b.step; });
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    for (std::size_t i = 0; i < waits.size(); ++i) {
      const bool superseded =
          waits[i].on == Wait::On::compute && i + 1 < waits.size() && waits[i + 1].on == Wait::On::compute;
      if (!superseded) {
        out_.waits.push_back(waits[i]);
      }
    }
    return {begin, size_of(out_.waits)};
  }

  Range store_releases() {
    const std::uint32_t begin = size_of(out_.releases);
    for (PendingRelease& release : step_releases_) {
      const Range waits = store_waits(release.other_users);
      out_.releases.push_back({release.slot, waits});
    }
    return {begin, size_of(out_.releases)};
  }

  struct Receive {
    std::int32_t comm = 0;
    std::int32_t computes_before = 0;  // computations that stand before it in the order
  };
  struct PendingRelease {
    Slot slot;
    std::vector<Wait> other_users;
  };

  const Program& program_;
  const Routing& routing_;
  const std::vector<ChunkShape>& shapes_;
  Steps& steps_;
  RankId rank_;
  RankProgram& out_;
  const RankTimes& times_;
  RankTenants tenants_;
  std::size_t microbatches_;
  std::vector<Occupancy> occupancies_;      // [tenancy][row][microbatch]
  std::vector<std::int32_t> last_reader_;   // [row][microbatch]: last computation so far that touched a value
  std::vector<std::int32_t> previous_add_;  // [row][microbatch]
  std::vector<std::vector<Wait>> receive_waits_;
  std::vector<Receive> receives_;
  std::size_t next_receive_ = 0;
  std::array<SlotPool, 2> pools_;
  std::vector<Wait> step_waits_;
  std::vector<PendingRelease> step_releases_;
  std::int32_t position_ = 0;
};

}  // namespace

void assign_slots(const Program& program, const std::vector<ChunkShape>& shapes, RankId rank, Steps& steps) {
  SlotAssigner(program, shapes, rank, steps).assign();
}

}  // namespace plumb
