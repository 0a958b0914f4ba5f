/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl set vram; see vram.h. */
#include "manager/control_inner.h"

#include "base/log.h"
#include "base/size.h"
#include "manager/vram.h"

#include <errno.h>

void control_set_vram(struct manager *manager, const char *value, struct answer *answer)
{
	uint64_t bytes;
	int r;

	if (value == NULL || cnre_size_parse(value, &bytes) < 0) {
		control_refuse(answer, -EINVAL, "not a size: write for example 40G, or 0 to empty the GPUs");
		return;
	}
	if (bytes > VRAM_BUDGET_MAX) {
		control_refuse(answer, -EINVAL, "no GPU has so much: at most 1024T");
		return;
	}
	r = vram_set_budget(manager, bytes);
	if (r < 0) {
		control_refuse(answer, r, "this manager uses no GPU: start it with --vram SIZE, or with --vram 0 and set a size later");
		return;
	}
	cnre_log(CNRE_LOG_NOTICE, "set vram: each GPU has a budget of %llu bytes now%s", (unsigned long long)bytes,
		 r > 0 ? ", some of what is beyond it still in use" : "");
	answer->json = json_pack("{s:I, s:I, s:b}", "budget_bytes", (json_int_t)cnre_counter_get(&manager->counters->vram_budget_bytes),
				 "resident_bytes", (json_int_t)cnre_counter_get(&manager->counters->vram_bytes), "trimming", r > 0);
}
