/* SPDX-License-Identifier: Apache-2.0 */
/* --check of GPUs: opens them as a start would, says what it found, and lets go. */
#include "base/log.h"
#include "base/size.h"
#include "gpu/device.h"
#include "manager/settings.h"
#include "manager/vram.h"

#include <errno.h>
#include <stdio.h>

static void print_device(struct gpu *gpu, uint32_t number, const struct settings *settings, const struct vram_request *request)
{
	struct gpu_device_status status;
	char budget[16], free_now[16], total[16], charge[16];
	uint64_t bytes = request->budget_bytes, spare;

	gpu_get_status(gpu, number, &status);
	if (status.state == GPU_LOST) {
		(void)printf("vram     %s: left out: %s\n", status.uuid_text, status.reason);
		return;
	}
	spare = status.free_bytes > settings->vram_reserve_bytes ? status.free_bytes - settings->vram_reserve_bytes : 0;
	if (request->is_auto)
		bytes = spare;
	(void)printf("vram     %s (%s): %s for experts; %s of %s are free now%s\n", status.uuid_text, status.name,
		     cnre_size_format(bytes, budget, sizeof budget), cnre_size_format(status.free_bytes, free_now, sizeof free_now),
		     cnre_size_format(status.total_bytes, total, sizeof total),
		     bytes > spare ? ": less than that and the reserve, so it would not be filled" : "");
	(void)printf("           the driver charges in steps of %s\n", cnre_size_format(status.granularity, charge, sizeof charge));
}

int vram_check_print(const struct settings *settings)
{
	char message[VRAM_MESSAGE_BYTES], why[GPU_MESSAGE_BYTES] = "";
	struct vram_request request;
	struct gpu_setup setup;
	struct gpu *gpu;
	int r;

	if (vram_settings_unused(settings) != NULL)
		cnre_log(CNRE_LOG_WARNING, "%s", vram_settings_unused(settings));
	if (settings->vram == NULL) {
		(void)printf("vram     none: with --vram SIZE or auto the hottest experts lie in the memory of GPUs\n");
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
		(void)printf("vram     none: %s\n", why);
		return 0;
	}
	if (r < 0) {
		cnre_log(CNRE_LOG_ERROR, "--vram: %s", why);
		return r;
	}
	for (uint32_t i = 0; i < gpu_count(gpu); i++)
		print_device(gpu, i, settings, &request);
	(void)gpu_close(gpu);
	return 0;
}
