/* SPDX-License-Identifier: Apache-2.0 */
/* UUIDs of devices as text and as bytes. */
#include "gpu/uuid.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define TEXT "GPU-00112233-4455-6677-8899-aabbccddeeff"

static const unsigned char bytes[GPU_UUID_BYTES] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
						    0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

Test(gpu_uuid, both_kinds_come_back_as_they_went)
{
	unsigned char uuid[GPU_UUID_BYTES];
	char text[GPU_UUID_TEXT_BYTES];

	cr_assert_eq(gpu_uuid_parse(TEXT, uuid), 0);
	cr_expect_arr_eq(uuid, bytes, sizeof bytes);
	gpu_uuid_format(uuid, 0, text);
	cr_expect_str_eq(text, TEXT);
	gpu_uuid_format(uuid, 1, text);
	cr_expect_str_eq(text, "MIG-00112233-4455-6677-8899-aabbccddeeff");
	memset(uuid, 0, sizeof uuid);
	cr_assert_eq(gpu_uuid_parse(text, uuid), 0);
	cr_expect_arr_eq(uuid, bytes, sizeof bytes);
	cr_expect_eq(gpu_uuid_parse("GPU-00112233-4455-6677-8899-AABBCCDDEEFF", uuid), 0, "digits of either case");
}

Test(gpu_uuid, anything_else_is_refused_and_leaves_the_output_alone)
{
	static const char *const bad[] = {
		"",    "GPU-", "0", "00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-aabbccddeef",
		TEXT "0", TEXT " ", "GPU-0011223-34455-6677-8899-aabbccddeeff", "GPU-00112233445566778899aabbccddeeff",
		"GPU-g0112233-4455-6677-8899-aabbccddeeff", "MIG-GPU-00112233-4455-6677-8899-aabbccddeeff/1/0",
		"gpu-00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-aabbccddee\x80\x80",
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		unsigned char uuid[GPU_UUID_BYTES] = {7};

		cr_expect_eq(gpu_uuid_parse(bad[i], uuid), -EINVAL, "\"%s\"", bad[i]);
		cr_expect_eq(uuid[0], 7);
	}
}
