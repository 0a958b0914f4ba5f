/* SPDX-License-Identifier: Apache-2.0 */
/* Rates from two looks at a manager, for top. Pure. */
#ifndef CNRE_TOOLS_CTL_TOP_RATES_H
#define CNRE_TOOLS_CTL_TOP_RATES_H

#include "tools/ctl/verb.h"

/*
 * top_rates - what happened between two looks
 *
 * @before, @now   each the answers to stats, clients, layers and drives under these names
 *
 * Returns a new reference, busiest clients and longest waiting layers first (doc/man/cnrectl.1 has the keys), or NULL: the
 * manager is another one, or there is no memory. Where a field was not as expected, fields says which.
 */
json_t *top_rates(struct fields *fields, const json_t *before, const json_t *now);

#endif
