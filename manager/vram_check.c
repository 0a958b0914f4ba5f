/* SPDX-License-Identifier: Apache-2.0 */
/* --check of GPUs: opens them as a start would, says what it found, and lets go. */
#include "base/log.h"
#include "base/size.h"
#include "gpu/device.h"
#include "manager/settings.h"
#include "manager/vram.h"

#include <errno.h>
#include <stdio.h>

static void tell_device(struct gpu *gpu, uint32_t number, const struct settings *settings, const struct vram_request *request,
			void (*say)(const char *line))
{
	struct gpu_device_status status;
	char line[512], budget[16], free_now[16], total[16], charge[16];
	uint64_t bytes = request->budget_bytes, spare;

	gpu_get_status(gpu, number, &status);
	if (status.state == GPU_LOST) {
		(void)snprintf(line, sizeof line, "%s: left out: %s", status.uuid_text, status.reason);
		say(line);
		return;
	}
	spare = status.free_bytes > settings->vram_reserve_bytes ? status.free_bytes - settings->vram_reserve_bytes : 0;
	if (request->is_auto)
		bytes = spare;
	(void)snprintf(line, sizeof line, "%s (%s): %s for experts; %s of %s are free now%s; the driver charges in steps of %s",
		       status.uuid_text, status.name, cnre_size_format(bytes, budget, sizeof budget),
		       cnre_size_format(status.free_bytes, free_now, sizeof free_now), cnre_size_format(status.total_bytes, total, sizeof total),
		       bytes > spare ? ", less than that and the reserve, so it would not be filled" : "",
		       cnre_size_format(status.granularity, charge, sizeof charge));
	say(line);
}

int vram_check(const struct settings *settings, void (*say)(const char *line))
{
	char message[VRAM_MESSAGE_BYTES], line[GPU_MESSAGE_BYTES + 8], why[GPU_MESSAGE_BYTES] = "";
	struct vram_request request;
	struct gpu_setup setup;
	struct gpu *gpu;
	int r;

	if (vram_settings_unused(settings) != NULL)
		cnre_log(CNRE_LOG_WARNING, "%s", vram_settings_unused(settings));
	if (settings->vram == NULL) {
		say("none: with --vram SIZE or auto the hottest experts lie in the memory of GPUs");
		return 0;
	}
	r = vram_settings_parse(settings, &request, message);
	if (r < 0)
		return r; /* said at the start */
	setup = (struct gpu_setup){.staging_bytes = settings->vram_staging_bytes,
				   .uuids = request.uuid_count > 0 ? request.uuid : NULL,
				   .uuid_count = request.uuid_count};
	r = gpu_open(&gpu, &setup, why);
	if (r == -ENODEV && request.is_auto && request.uuid_count == 0) {
		(void)snprintf(line, sizeof line, "none: %s", why);
		say(line);
		return 0;
	}
	if (r < 0) {
		cnre_log(CNRE_LOG_ERROR, "--vram: %s%s", why, vram_settings_hint(&request, r));
		return r;
	}
	for (uint32_t i = 0; i < gpu_count(gpu); i++)
		tell_device(gpu, i, settings, &request, say);
	(void)gpu_close(gpu);
	return 0;
}
