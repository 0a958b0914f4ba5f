/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: the devices of a new world, and which of them a process sees. */
#include "tests/standin/fakecuda/world.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2M", "1G", "4096"; 0 if it is none. Moves *text behind it. */
static uint64_t read_bytes(const char **text)
{
	char *end;
	uint64_t bytes = strtoull(*text, &end, 10);
	static const char units[] = "KMGT";
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		bytes <<= 10 * (unit - units + 1);
		end++;
	}
	*text = end;
	return bytes;
}

static uint64_t bytes_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text && *text ? read_bytes(&text) : otherwise;
}

/* A list of which the last number counts for all after it. */
static int read_list(const char *name, uint64_t otherwise, uint64_t into[DEVICES_MAX])
{
	const char *text = getenv(name);
	for (int i = 0; i < DEVICES_MAX; i++) {
		if (text && *text) {
			otherwise = read_bytes(&text);
			if (!otherwise || (*text && *text != ',')) {
				(void)fprintf(stderr, "fakecuda: %s is no list of bytes\n", name);
				return -EINVAL;
			}
			text += *text == ',';
		}
		into[i] = otherwise;
	}
	return 0;
}

static int read_uuid(const char *text, size_t length, struct world_device *device)
{
	unsigned byte;
	size_t at = 4;
	device->is_mig = length > 4 && !strncmp(text, "MIG-", 4);
	if (!device->is_mig && (length <= 4 || strncmp(text, "GPU-", 4) != 0))
		return -EINVAL;
	for (int i = 0; i < UUID_BYTES; i++) {
		at += at < length && text[at] == '-';
		if (at + 2 > length || sscanf(text + at, "%2x", &byte) != 1)
			return -EINVAL;
		device->uuid[i] = (uint8_t)byte;
		at += 2;
	}
	return at == length ? 0 : -EINVAL;
}

int settings_read(struct world *into)
{
	uint64_t memory[DEVICES_MAX], granule[DEVICES_MAX];
	const char *count = getenv("FAKECUDA_DEVICES"), *uuids = getenv("FAKECUDA_UUIDS");
	into->device_count = count && *count ? atoi(count) : 1;
	if (into->device_count < 0 || into->device_count > DEVICES_MAX ||
	    read_list("FAKECUDA_MEMORY", 1ULL << 30, memory) || read_list("FAKECUDA_GRANULE", 2ULL << 20, granule)) {
		(void)fprintf(stderr, "fakecuda: bad FAKECUDA_DEVICES, _MEMORY or _GRANULE\n");
		return -EINVAL;
	}
	for (int i = 0; i < into->device_count; i++) {
		struct world_device *device = &into->device[i];
		*device = (struct world_device){.total_bytes = memory[i], .granule_bytes = granule[i]};
		for (int b = 0; b < UUID_BYTES; b++)
			device->uuid[b] = (uint8_t)(0xfa + 7 * b + 29 * i);
		size_t length = uuids ? strcspn(uuids, ",") : 0;
		if (length && read_uuid(uuids, length, device)) {
			(void)fprintf(stderr, "fakecuda: FAKECUDA_UUIDS: not GPU-… or MIG-… and 16 bytes: %s\n", uuids);
			return -EINVAL;
		}
		if (length)
			uuids += length + (uuids[length] == ',');
	}
	into->context_bytes = bytes_of("FAKECUDA_CONTEXT", 0);
	into->pinned_limit_bytes = bytes_of("FAKECUDA_PINNED", UINT64_MAX);
	atomic_store(&into->op_ns, bytes_of("FAKECUDA_OP_NS", 0));
	atomic_store(&into->mib_ns, bytes_of("FAKECUDA_MIB_NS", 0));
	return 0;
}

static void write_uuid(const struct world_device *device, char text[64])
{
	const uint8_t *b = device->uuid;
	(void)snprintf(text, 64, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       device->is_mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
		       b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* One entry of CUDA_VISIBLE_DEVICES; -1 if it names no device, or more than one. */
static int device_named(const struct world *of, const char *name, size_t length)
{
	char uuid[64], *end;
	int found = -1;
	if (length && isdigit((unsigned char)*name)) {
		long index = strtol(name, &end, 10);
		return end == name + length && index < of->device_count ? (int)index : -1;
	}
	if (length <= 4)
		return -1;
	for (int i = 0; i < of->device_count; i++) {
		write_uuid(&of->device[i], uuid);
		if (strncasecmp(uuid, name, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* A process sees one compute instance of MIG at most, and then nothing else. */
static int keep_one_mig(const struct world *of, int *visible, int count)
{
	for (int i = 0; i < count; i++)
		if (of->device[visible[i]].is_mig) {
			visible[0] = visible[i];
			return 1;
		}
	return count;
}

int settings_visible(const struct world *of, int *visible)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int count = 0;
	if (!list) {
		for (int i = 0; i < of->device_count; i++)
			visible[count++] = i;
		return keep_one_mig(of, visible, count);
	}
	/* What follows a bad entry is not seen either; a device named twice means none at all. */
	while (*list) {
		size_t length = strcspn(list, ",");
		int device = device_named(of, list, length);
		if (device < 0)
			break;
		for (int i = 0; i < count; i++)
			if (visible[i] == device)
				return 0;
		visible[count++] = device;
		list += length + (list[length] == ',');
	}
	return keep_one_mig(of, visible, count);
}
