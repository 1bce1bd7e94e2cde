-- What each guest's sample holds: contents, their pages, and the frames that remain if the guest is alone.
-- A frame takes at most `max_sharing` pages. Frames are counted in whole numbers. Heavy contents have no residual: they are counted apart.
SELECT
    guest,
    COUNT(*) FILTER (copies > 0) AS contents,
    SUM(copies) AS pages,
    SUM(frames) AS frames,
    SUM(COALESCE(residual - frames, 0)) AS surplus,
    SUM(POWER(COALESCE(residual - frames, 0), 2)) AS squares
FROM samples
GROUP BY guest
