/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl kv and cnrectl set kv-ram; see kv.h. */
#include "manager/control_inner.h"

#include "base/log.h"
#include "base/size.h"
#include "manager/kv_transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void control_set_kv_ram(struct manager *manager, const char *value, struct answer *answer)
{
	uint64_t bytes;
	int r;

	if (value == NULL || cnre_size_parse(value, &bytes) < 0) {
		control_refuse(answer, -EINVAL, "not a size: write for example 8G or 512M");
		return;
	}
	r = kv_set_budget(manager, bytes);
	if (r == -ENOTSUP)
		control_refuse(answer, r, "this manager keeps no KV prefixes: start it with --kv-ram");
	else if (r < 0)
		control_refuse(answer, r, "too little to keep anything: ask for 4M at least");
	if (r < 0)
		return;
	cnre_log(CNRE_LOG_NOTICE, "set kv-ram: the budget is now %llu bytes%s", (unsigned long long)kv_budget_bytes(manager),
		 r > 0 ? ", some of it still leased" : "");
	answer->json = json_pack("{s:I, s:I, s:b}", "budget_bytes", (json_int_t)kv_budget_bytes(manager), "resident_bytes",
				 (json_int_t)cnre_counter_get(&manager->counters->kv_resident_bytes), "trimming", r > 0);
}

/* *fd is the transfer's where it began. */
static void transfer(struct manager *manager, const struct peer *peer, const json_t *request, int is_export, int *fd,
		     struct answer *answer)
{
	const char *name = json_string_value(json_object_get(request, is_export ? "key" : "namespace"));

	if (manager->kv == NULL)
		control_refuse(answer, -ENOTSUP, "this manager keeps no KV prefixes: start it with --kv-ram");
	else if (*fd < 0)
		control_refuse(answer, -EBADF, "the request came without a file");
	else if (is_export)
		answer->status = kv_transfer_export(manager->kv, name, *fd, answer->message);
	else
		answer->status = kv_transfer_import(manager->kv, name, peer, *fd, answer->message);
	if (answer->status < 0)
		return;
	*fd = -1;
	answer->json = kv_transfer_report(manager->kv);
}

void control_kv(struct manager *manager, const struct peer *peer, const json_t *request, int *fd, struct answer *answer)
{
	const char *action = json_string_value(json_object_get(request, "action"));

	if (action != NULL && (strcmp(action, "export") == 0 || strcmp(action, "import") == 0))
		transfer(manager, peer, request, strcmp(action, "export") == 0, fd, answer);
	else if (action != NULL && strcmp(action, "transfer") == 0 && manager->kv != NULL)
		answer->json = kv_transfer_report(manager->kv);
	else
		control_refuse(answer, -EINVAL, "no such action of kv: export, import, transfer");
}
