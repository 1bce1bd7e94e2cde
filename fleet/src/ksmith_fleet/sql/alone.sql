-- What each guest's sample holds: contents, their pages, and the frames that remain if the guest is alone.
-- A frame takes at most `max_sharing` pages. Frames are counted in whole numbers.
SELECT
    samples.guest,
    COUNT(*) AS contents,
    SUM(samples.copies) AS pages,
    SUM(CAST(FLOOR((samples.copies + settings.max_sharing - 1) / (1.0 * settings.max_sharing)) AS BIGINT)) AS frames,
    SUM(CAST(POWER(FLOOR((samples.copies + settings.max_sharing - 1) / (1.0 * settings.max_sharing)), 2) AS BIGINT)) AS frames2
FROM samples CROSS JOIN settings
WHERE samples.copies > 0
GROUP BY samples.guest
