/* SPDX-License-Identifier: Apache-2.0 */
/* Text and bytes of UUIDs; see uuid.h. */
#include "gpu/uuid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 4u

/* Whether a hyphen stands before this byte: 8-4-4-4-12 digits. */
static int follows_hyphen(unsigned byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int gpu_uuid_parse(const char *text, unsigned char ret_uuid[GPU_UUID_BYTES])
{
	unsigned char uuid[GPU_UUID_BYTES];

	if (strncmp(text, "GPU-", PREFIX_BYTES) != 0 && strncmp(text, "MIG-", PREFIX_BYTES) != 0)
		return -EINVAL;
	text += PREFIX_BYTES;
	for (unsigned i = 0; i < GPU_UUID_BYTES; i++) {
		int high, low;

		if (follows_hyphen(i) && *text++ != '-')
			return -EINVAL;
		high = digit_of(text[0]);
		low = high < 0 ? -1 : digit_of(text[1]); /* not beyond the end of the text */
		if (low < 0)
			return -EINVAL;
		uuid[i] = (unsigned char)(high << 4 | low);
		text += 2;
	}
	if (*text != '\0')
		return -EINVAL;
	memcpy(ret_uuid, uuid, sizeof uuid);
	return 0;
}

void gpu_uuid_format(const unsigned char uuid[GPU_UUID_BYTES], int is_mig, char text[GPU_UUID_TEXT_BYTES])
{
	size_t at = (size_t)snprintf(text, GPU_UUID_TEXT_BYTES, "%s", is_mig ? "MIG-" : "GPU-");

	for (unsigned i = 0; i < GPU_UUID_BYTES; i++)
		at += (size_t)snprintf(text + at, GPU_UUID_TEXT_BYTES - at, "%s%02x", follows_hyphen(i) ? "-" : "", uuid[i]);
}
