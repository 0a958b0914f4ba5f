/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding the budget from what was read; pure. See budget.h for the terms. */
#include "manager/budget.h"

#include "base/check.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define AUTOMATIC_PERCENT 80u

static uint64_t subtract(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : value > high ? high : value;
}

static struct budget_term *add_term(struct budget *budget, uint64_t bytes, const char *advice)
{
	struct budget_term *term = &budget->term[budget->term_count];

	CNRE_CHECK(budget->term_count < BUDGET_TERMS_MAX);
	budget->term_count++;
	term->bytes = bytes;
	term->advice = advice;
	return term;
}

static void say(struct budget_term *term, const char *what, uint64_t whole, uint64_t used, uint64_t reserve,
		uint64_t engine, uint64_t more)
{
	char a[16], b[16], c[16], d[16], e[16];

	(void)snprintf(term->source, sizeof term->source,
		       "%s: %s, less %s in use, %s in reserve, %s for the engine, KV prefixes and staging of GPUs, plus %s", what,
		       cnre_size_format(whole, a, sizeof a), cnre_size_format(used, b, sizeof b),
		       cnre_size_format(reserve, c, sizeof c), cnre_size_format(engine, d, sizeof d),
		       cnre_size_format(more, e, sizeof e));
}

/* ---- huge pages: how many the limits let us use ---- */

static uint64_t find_usable_huge(const struct budget_inputs *inputs, const struct budget_request *request,
				 enum budget_huge size)
{
	enum budget_limit_kind kind = size == BUDGET_HUGE_2M ? BUDGET_LIMIT_HUGE_2M : BUDGET_LIMIT_HUGE_1G;
	uint64_t usable = inputs->huge_free_bytes[size];

	if (!request->may_use_huge[size])
		return 0;
	if (inputs->node.total_bytes != 0 && inputs->node.huge_free_bytes[size] < usable)
		usable = inputs->node.huge_free_bytes[size];
	for (uint32_t i = 0; i < inputs->limit_count; i++) {
		const struct budget_limit *limit = &inputs->limit[i];

		if (limit->kind == kind && subtract(limit->limit_bytes, limit->used_bytes) < usable)
			usable = subtract(limit->limit_bytes, limit->used_bytes);
	}
	return usable;
}

static const char *describe_hugetlb(const struct budget_inputs *inputs)
{
	if (inputs->charges_hugetlb)
		return "the kernel charges huge pages to the memory limits of the control groups (memory_hugetlb_accounting)";
	return "the kernel does not charge huge pages to the memory limits of the control groups: this budget, which counts them, is the bound";
}

/* ---- terms ---- */

static void add_machine_term(const struct budget_inputs *inputs, const struct budget_request *request,
			     struct budget *budget)
{
	uint64_t reserve = clamp(inputs->total_bytes / 20, 512 * MIB, 16 * GIB);
	uint64_t huge = add(budget->huge_usable_bytes[BUDGET_HUGE_2M], budget->huge_usable_bytes[BUDGET_HUGE_1G]);
	uint64_t held_plain = subtract(request->held_bytes, request->held_huge_bytes);
	uint64_t plain = subtract(subtract(add(inputs->available_bytes, held_plain), reserve), request->private_bytes);
	struct budget_term *term;

	term = add_term(budget, add(plain, add(huge, request->held_huge_bytes)),
			"free memory on this machine, or ask for less");
	say(term, "MemAvailable (/proc/meminfo)", inputs->available_bytes, 0, reserve, request->private_bytes,
	    add(request->held_bytes, huge));
}

static void add_node_term(const struct budget_inputs *inputs, const struct budget_request *request,
			  struct budget *budget)
{
	const struct budget_node *node = &inputs->node;
	uint64_t reserve = clamp(node->total_bytes / 20, 128 * MIB, 4 * GIB);
	uint64_t huge = add(budget->huge_usable_bytes[BUDGET_HUGE_2M], budget->huge_usable_bytes[BUDGET_HUGE_1G]);
	uint64_t held_plain = subtract(request->held_bytes, request->held_huge_bytes);
	uint64_t plain = subtract(add(node->available_bytes, held_plain), reserve);
	struct budget_term *term;
	char what[96];

	term = add_term(budget, add(plain, add(huge, request->held_huge_bytes)),
			"use other nodes too (--numa interleave), or ask for less");
	(void)snprintf(what, sizeof what, "free on node %d (/sys/devices/system/node/node%d/meminfo)", node->number,
		       node->number);
	say(term, what, node->available_bytes, 0, reserve, 0, add(request->held_bytes, huge));
}

static void add_limit_term(const struct budget_inputs *inputs, const struct budget_limit *limit,
			   const struct budget_request *request, struct budget *budget)
{
	uint64_t reserve = clamp(limit->limit_bytes / 20, 32 * MIB, GIB);
	uint64_t held = inputs->charges_hugetlb ? request->held_bytes
						: subtract(request->held_bytes, request->held_huge_bytes);
	uint64_t others = subtract(limit->used_bytes, held);
	struct budget_term *term;

	term = add_term(budget,
			subtract(subtract(subtract(limit->limit_bytes, others), reserve), request->private_bytes),
			"raise this limit (MemoryMax= or MemoryHigh= of the unit or slice), or ask for less");
	say(term, limit->file, limit->limit_bytes, others, reserve, request->private_bytes, 0);
}

static uint32_t find_least(const struct budget *budget)
{
	uint32_t least = 0;

	for (uint32_t i = 1; i < budget->term_count; i++)
		if (budget->term[i].bytes < budget->term[least].bytes)
			least = i;
	return least;
}

static void add_wish(const struct budget_request *request, struct budget *budget)
{
	uint32_t least = find_least(budget);
	struct budget_term *term;

	if (request->configured_bytes != 0) {
		term = add_term(budget, request->configured_bytes, "raise --ram");
		(void)snprintf(term->source, sizeof term->source, "configured: ram (%s)",
			       request->configured_source != NULL ? request->configured_source : "request");
		return;
	}
	term = add_term(budget, budget->term[least].bytes / 100 * AUTOMATIC_PERCENT, "say how much with --ram");
	(void)snprintf(term->source, sizeof term->source,
		       "automatic: %u %% of the least of the above, so that other programs find room",
		       AUTOMATIC_PERCENT);
}

void budget_decide(const struct budget_inputs *inputs, const struct budget_request *request, struct budget *ret_budget)
{
	struct budget_term *term;

	memset(ret_budget, 0, sizeof *ret_budget);
	for (int size = 0; size < BUDGET_HUGE_COUNT; size++)
		ret_budget->huge_usable_bytes[size] = find_usable_huge(inputs, request, (enum budget_huge)size);
	ret_budget->hugetlb_note = describe_hugetlb(inputs);
	add_machine_term(inputs, request, ret_budget);
	if (inputs->node.total_bytes != 0)
		add_node_term(inputs, request, ret_budget);
	for (uint32_t i = 0; i < inputs->limit_count; i++)
		if (inputs->limit[i].kind == BUDGET_LIMIT_MEMORY)
			add_limit_term(inputs, &inputs->limit[i], request, ret_budget);
	add_wish(request, ret_budget);
	term = add_term(ret_budget, request->needed_bytes, "");
	(void)snprintf(term->source, sizeof term->source, "needed: all experts of all models");
	ret_budget->binding = find_least(ret_budget);
	ret_budget->bytes = ret_budget->term[ret_budget->binding].bytes;
}
