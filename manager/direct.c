/* SPDX-License-Identifier: Apache-2.0 */
/* A file system may refuse O_DIRECT when a file is opened, at its first read, or at any later one; see direct.h. */
#include "manager/direct.h"

#include "base/log.h"
#include "manager/loader.h"
#include "manager/manager.h"

void direct_refused(void *context, uint32_t file)
{
	struct manager *manager = context;
	uint32_t drive = loader_drive_of(manager->loader, file);

	cnre_counter_add(&manager->counters->direct_fallbacks, 1);
	if ((manager->buffered_drives >> drive & 1) != 0)
		return;
	manager->buffered_drives |= 1u << drive;
	cnre_log(CNRE_LOG_WARNING,
		 "%.300s: direct reads are not possible: this and what else on its drive is so is read through the page cache: "
		 "put checkpoints on a file system with O_DIRECT, such as ext4 or xfs, or set --direct no",
		 loader_file_path(manager->loader, file));
}
