/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of --vram… before a driver is loaded; see vram.h. */
#include "manager/vram.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"
#include "gpu/device.h"
#include "manager/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

_Static_assert(CNRE_COUNT_OF(((struct vram_request *)0)->uuid) == GPU_DEVICES_MAX, "as many as there can be");

#define MIG_BEGIN "MIG-"
#define GPU_BEGIN "GPU-"

/* GPU- or MIG-, and the 36 characters of a UUID. */
static int is_uuid(const char *text)
{
	if (strncmp(text, GPU_BEGIN, strlen(GPU_BEGIN)) != 0 && strncmp(text, MIG_BEGIN, strlen(MIG_BEGIN)) != 0)
		return 0;
	text += strlen(GPU_BEGIN);
	for (unsigned i = 0; i < 36; i++)
		if (text[i] == '\0' || strchr(i == 8 || i == 13 || i == 18 || i == 23 ? "-" : "0123456789abcdefABCDEF", text[i]) == NULL)
			return 0;
	return text[36] == '\0';
}

static int parse_devices(const char *list, struct vram_request *request, char message[VRAM_MESSAGE_BYTES])
{
	char *rest = request->text;

	if (strlen(list) >= sizeof request->text)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL, "--vram-devices: the value is too long");
	(void)snprintf(request->text, sizeof request->text, "%s", list);
	for (char *uuid; (uuid = strsep(&rest, ",")) != NULL;) {
		if (!is_uuid(uuid))
			return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL,
					    "--vram-devices: \"%.64s\" is not the UUID of a GPU: nvidia-smi -L shows them", uuid);
		for (uint32_t i = 0; i < request->uuid_count; i++)
			if (strcasecmp(request->uuid[i], uuid) == 0)
				return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL, "--vram-devices: %.64s is named twice", uuid);
		if (request->uuid_count == GPU_DEVICES_MAX)
			return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL, "--vram-devices: at most %u", GPU_DEVICES_MAX);
		request->uuid[request->uuid_count++] = uuid;
	}
	return 0;
}

const char *vram_settings_hint(const struct vram_request *request, int error)
{
	return error == -ENODEV && !request->is_auto && request->uuid_count == 0 ? "; --vram auto starts without" : "";
}

int vram_settings_parse(const struct settings *settings, struct vram_request *ret_request, char message[VRAM_MESSAGE_BYTES])
{
	memset(ret_request, 0, sizeof *ret_request);
	if (settings->vram != NULL && strcmp(settings->vram, "auto") == 0)
		ret_request->is_auto = 1;
	else if (settings->vram != NULL && cnre_size_parse(settings->vram, &ret_request->budget_bytes) < 0)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL, "--vram: \"%.64s\" is not a size such as 40G, nor auto",
				    settings->vram);
	if (ret_request->budget_bytes > VRAM_BUDGET_MAX)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -EINVAL, "--vram: \"%.64s\" is more than any GPU has: at most 1024T", settings->vram);
	return settings->vram_devices == NULL ? 0 : parse_devices(settings->vram_devices, ret_request, message);
}

const char *vram_settings_unused(const struct settings *settings)
{
	static const char *const names[] = {"vram-devices", "vram-reserve", "vram-staging", "vram-trust"};

	for (size_t i = 0; settings->vram == NULL && i < CNRE_COUNT_OF(names); i++)
		if (settings_origin_of(settings, names[i])->source != SETTINGS_DEFAULT)
			return "without --vram no GPU is touched: --vram-devices, --vram-reserve, --vram-staging and --vram-trust say nothing";
	return NULL;
}
