/* SPDX-License-Identifier: Apache-2.0 */
/* Samples for tests of cnre-top, as a manager would give them. */
#ifndef CNRE_TESTS_SUPPORT_TOP_SAMPLE_H
#define CNRE_TESTS_SUPPORT_TOP_SAMPLE_H

#include <jansson.h>

/* The n-th of a made run, a second apart: two layers of 6 experts, two clients, a drive. A new reference. */
json_t *top_sample_make(int n);

/* The same of a manager with two GPUs, the second of which is lost, if so asked. A new reference. */
json_t *top_sample_make_with_gpus(int n, int one_is_lost);

#endif
