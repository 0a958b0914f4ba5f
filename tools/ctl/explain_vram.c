/* SPDX-License-Identifier: Apache-2.0 */
/* See explain_vram.h. */
#include "tools/ctl/explain_vram.h"

#include <stdio.h>
#include <string.h>

#define DEVICES_MAX 64u /* looked at; a manager has 16 at most */

static void take_reason(const json_t *object, struct explain_vram *vram)
{
	const char *reason = json_string_value(json_object_get(object, "reason"));

	(void)snprintf(vram->reason, sizeof vram->reason, "%s", reason != NULL ? reason : "no reason is given");
}

static void take_device(struct fields *fields, const json_t *device, struct explain_vram *vram)
{
	vram->device_count++;
	if (strcmp(fields_string(fields, device, "state"), "lost") != 0 || vram->lost_count++ > 0)
		return;
	(void)snprintf(vram->lost, sizeof vram->lost, "%s", fields_string(fields, device, "uuid"));
	take_reason(device, vram);
}

void explain_vram_take_status(struct fields *fields, const json_t *status, struct explain_vram *vram)
{
	const json_t *json = json_object_get(status, "vram"), *device;
	const char *state = json == NULL ? "off" : fields_string(fields, json, "state");
	size_t i;

	if (strcmp(state, "off") == 0)
		return;
	vram->is_asked_for = 1;
	vram->is_on = strcmp(state, "on") == 0;
	if (!vram->is_on)
		take_reason(json, vram);
	json_array_foreach (fields_array(fields, json, "devices"), i, device)
		if (i < DEVICES_MAX)
			take_device(fields, device, vram);
}

void explain_vram_take_stats(struct fields *fields, const json_t *stats, struct explain_vram *vram)
{
	if (!vram->is_asked_for)
		return;
	vram->hits = fields_number(fields, stats, "vram_hits");
	vram->uploads = fields_number(fields, stats, "vram_uploads");
}

void explain_vram_say(const struct explain_vram *vram, char *text, size_t bytes)
{
	text[0] = '\0';
	if (vram->lost_count > 0)
		(void)snprintf(text, bytes, "%u of %u GPUs lost, RAM and drives serve what they had: %s: %s; see dmesg and nvidia-smi, "
			       "then restart the manager",
			       vram->lost_count, vram->device_count, vram->lost, vram->reason);
	else if (vram->is_asked_for && !vram->is_on)
		(void)snprintf(text, bytes, "--vram is given and no GPU is used: %s; if one should be, put it right and restart the manager",
			       vram->reason);
}
