/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs; see verb.h. */
#include "tools/ctl/verb.h"

#include <errno.h>
#include <string.h>

const struct verb *const verb_table[] = {&verb_status, &verb_stats,  &verb_clients, &verb_layers, &verb_experts, &verb_why, &verb_explain, &verb_top, &verb_drives,  &verb_kv,
					 &verb_set,    &verb_policy, &verb_reset,   &verb_trace,  &verb_usage,
					 &verb_warm,   &verb_inspect, &verb_iobench, NULL};

const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; verb_table[i] != NULL; i++)
		if (strcmp(verb_table[i]->name, name) == 0)
			return verb_table[i];
	return NULL;
}

int verb_is_order(int argc, char *const *argv)
{
	(void)argc;
	(void)argv;
	return 1;
}

int verb_request_bare(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	json_t *request;

	if (argc > 1) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: takes no arguments", argv[1]);
		return -EINVAL;
	}
	request = json_pack("{s:s}", "verb", argv[0]);
	if (request == NULL)
		return -ENOMEM;
	*ret_request = request;
	return 0;
}
