// SPDX-License-Identifier: Apache-2.0
#include "cuda/storage_operators.cuh"

template struct plumb::cuda_detail::StorageOperators<plumb::Fp16>;
