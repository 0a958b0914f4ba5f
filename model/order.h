/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stable merge sort. qsort(3) may fall back to a quicksort when memory is short, which hostile input can make
 * quadratic; this one never is, and on input that is in order already it takes one pass.
 */
#ifndef CNRE_MODEL_ORDER_H
#define CNRE_MODEL_ORDER_H

#include <stddef.h>

typedef int model_compare(const void *a, const void *b, const void *context);

/* Sorts count elements of `size` bytes; scratch has as much room as base. */
void model_sort(void *base, void *scratch, size_t count, size_t size, model_compare *compare, const void *context);

#endif
