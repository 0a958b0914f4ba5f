/* SPDX-License-Identifier: Apache-2.0 */
/* See picture_vram.h. */
#include "tools/top/picture_vram.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX 64u /* looked at; a manager has 16 at most */

/* Null where nothing is wrong, or what is. */
static void take_reason(const json_t *object, char *text, size_t bytes)
{
	const char *reason = json_string_value(json_object_get(object, "reason"));

	(void)snprintf(text, bytes, "%s", reason != NULL ? reason : "no reason is given");
}

static void take_device(struct fields *fields, const json_t *device, struct picture_vram *vram)
{
	vram->device_count++;
	if (strcmp(fields_string(fields, device, "state"), "lost") != 0) {
		vram->used_bytes += fields_number(fields, device, "used_bytes");
		vram->budget_bytes += fields_number(fields, device, "budget_bytes");
		vram->experts += fields_number(fields, device, "experts");
		return;
	}
	if (vram->lost_count++ > 0)
		return;
	vram->lost_device = fields_number(fields, device, "device");
	take_reason(device, vram->reason, sizeof vram->reason);
}

void picture_vram_take(struct fields *fields, const json_t *sample, struct picture_vram *vram)
{
	const json_t *json = json_object_get(sample, "vram"), *stats = json_object_get(sample, "stats"), *device;
	const char *state;
	size_t i;

	if (json == NULL)
		return;
	state = fields_string(fields, json, "state");
	if (strcmp(state, "off") == 0)
		return;
	vram->is_there = 1;
	vram->is_on = strcmp(state, "on") == 0;
	if (!vram->is_on)
		take_reason(json, vram->reason, sizeof vram->reason);
	vram->hits = fields_number(fields, stats, "vram_hits");
	vram->uploads = fields_number(fields, stats, "vram_uploads");
	json_array_foreach (fields_array(fields, json, "devices"), i, device)
		if (i < DEVICES_MAX)
			take_device(fields, device, vram);
}

/* The number of the device that has it. */
static int is_device(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

int picture_vram_take_map(const json_t *text, struct picture_layer *layer, struct picture *picture)
{
	const char *device = json_string_value(text);

	if (text == NULL)
		return 0;
	if (device == NULL || strlen(device) != layer->experts)
		return -EBADMSG;
	picture->has_vram_map = 1;
	for (uint32_t i = 0; i < layer->experts; i++) {
		if (device[i] != '.' && !is_device(device[i]))
			return -EBADMSG;
		picture->in_vram[layer->first + i] = device[i] != '.';
		layer->in_vram += device[i] != '.';
	}
	return 0;
}
