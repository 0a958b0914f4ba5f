/* SPDX-License-Identifier: Apache-2.0 */
/* What --vram… says before a driver is loaded. */
#include "manager/settings.h"
#include "manager/vram.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ONE "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define TWO "MIG-00112233-4455-6677-8899-aabbccddee00"

static char message[VRAM_MESSAGE_BYTES];
static struct vram_request request;

static int parse(const char *vram, const char *devices)
{
	const struct settings settings = {.vram = vram, .vram_devices = devices};

	message[0] = '\0';
	return vram_settings_parse(&settings, &request, message);
}

Test(manager_vram_settings, a_size_auto_and_nothing)
{
	cr_assert_eq(parse("40G", NULL), 0);
	cr_expect(request.budget_bytes == 40ull << 30 && !request.is_auto && request.uuid_count == 0);
	cr_assert_eq(parse("auto", NULL), 0);
	cr_expect(request.is_auto);
	cr_assert_eq(parse("0", NULL), 0);
	cr_expect(request.budget_bytes == 0 && !request.is_auto, "devices are opened, a budget comes later");
	cr_assert_eq(parse(NULL, NULL), 0);
	cr_assert_eq(parse("1024T", NULL), 0);
	cr_expect_eq(parse("1025T", NULL), -EINVAL);
	cr_expect_not_null(strstr(message, "more than any GPU has"), "%s", message);
}

Test(manager_vram_settings, devices_are_named_by_what_they_are)
{
	cr_assert_eq(parse("1G", ONE "," TWO), 0);
	cr_assert_eq(request.uuid_count, 2);
	cr_expect_str_eq(request.uuid[0], ONE);
	cr_expect_str_eq(request.uuid[1], TWO);
}

Test(manager_vram_settings, what_names_no_device_is_refused_with_where_to_look)
{
	static const struct {
		const char *devices, *said;
	} cases[] = {
		{"0", "\"0\" is not the UUID of a GPU: nvidia-smi -L"},
		{"", "is not the UUID"},
		{ONE ",", "\"\" is not the UUID"},
		{ONE "0", "is not the UUID"},
		{"GPU-0011223-44455-6677-8899-aabbccddeeff", "is not the UUID"},
		{"gpu-00112233-4455-6677-8899-aabbccddeeff", "is not the UUID"},
		{ONE "," ONE, "is named twice"},
		{ONE ",GPU-00112233-4455-6677-8899-AABBCCDDEEFF", "is named twice"},
	};
	static char many[17 * 41];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_expect_eq(parse("1G", cases[i].devices), -EINVAL, "case %zu", i);
		cr_expect_not_null(strstr(message, cases[i].said), "case %zu: %s", i, message);
	}
	for (int i = 0; i < 17; i++)
		(void)snprintf(many + strlen(many), sizeof many - strlen(many), "%sGPU-001122%02x-4455-6677-8899-aabbccddeeff", i == 0 ? "" : ",", i);
	cr_expect_eq(parse("1G", many), -EINVAL);
	cr_expect_not_null(strstr(message, "at most 16"), "%s", message);
}

Test(manager_vram_settings, settings_that_say_nothing_are_told_of)
{
	char *const argv[] = {"cnre-managerd", "--model", "/tmp", "--vram-trust", "all", "--vram", "1G"};
	struct settings *settings;

	cr_assert_eq(settings_open(&settings, 5, argv, message, sizeof message), 0, "%s", message);
	cr_expect_not_null(vram_settings_unused(settings));
	(void)settings_close(settings);
	cr_assert_eq(settings_open(&settings, 7, argv, message, sizeof message), 0, "%s", message);
	cr_expect_null(vram_settings_unused(settings));
	(void)settings_close(settings);
}
